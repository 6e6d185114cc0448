/* SPDX-License-Identifier: Apache-2.0
 * Is standard output a terminal that curses knows? Apart from ctl_top.c, since term.h takes words such as `status_line` and `columns`
 * for itself. Main thread.
 */
#include "tools/ctl.h"
#include <ncurses.h>
#include <term.h>
#include <unistd.h>

bool ctl_terminal_known(void)
{
	int why;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || setupterm(NULL, STDOUT_FILENO, &why) != OK)
		return false;
	(void)del_curterm(cur_term);
	return true;
}
