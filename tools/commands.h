/* SPDX-License-Identifier: Apache-2.0
 * Prototypes of all commands, from commands.def.
 */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H
#define X(name, fn, line) int fn(int argc, char **argv);
#include "tools/commands.def"
#undef X
int cmd_inspect_graph(int argc, char **argv); /* tenon inspect graph */
#endif
