/* SPDX-License-Identifier: Apache-2.0
 * main() of a fuzz target built without a fuzzer: runs it over every file named on the command line (folders: all
 * files in them), then over mutations of each, drawn from a fixed generator, so that `make check` repeats itself.
 * FUZZ_MUTATIONS (default 200) says how many per file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX_BYTES = 4 << 20 };

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* One to eight edits: flip a bit, set an edge value, cut, or repeat a stretch. Returns the new size (<= room). */
static size_t mutate(uint8_t *p, size_t size, size_t room, uint64_t *s)
{
	static const uint8_t edge[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '\\', '{', '}', '\n' };

	for (uint64_t n = 1 + next_random(s) % 8; n && size; n--) {
		size_t at = next_random(s) % size, len = 1 + next_random(s) % 16;

		switch (next_random(s) % 5) {
		case 0:
			p[at] ^= (uint8_t)(1u << next_random(s) % 8);
			break;
		case 1:
			p[at] = edge[next_random(s) % sizeof edge];
			break;
		case 2:
			size = at + 1;
			break;
		case 3:
			len = len < size - at ? len : size - at;
			if (size + len <= room) {
				memmove(p + at + len, p + at, size - at);
				size += len;
			}
			break;
		default:
			len = len < size - at ? len : size - at;
			memmove(p + at, p + at + len, size - at - len);
			size -= len;
		}
	}
	return size;
}

static uint8_t *read_all(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = f ? malloc(INPUT_MAX_BYTES) : NULL;

	*size = p ? fread(p, 1, INPUT_MAX_BYTES, f) : 0;
	if (f)
		(void)fclose(f);
	return p;
}

static void run_file(const char *path, unsigned long n_mutations, unsigned long *runs)
{
	uint64_t seed = 1;
	size_t size, room;
	uint8_t *base = read_all(path, &size), *work;

	if (!base) {
		(void)fprintf(stderr, "replay: %s: cannot be read\n", path);
		exit(1);
	}
	for (const char *c = strrchr(path, '/') ? strrchr(path, '/') : path; *c; c++)
		seed = seed * 31 + (uint8_t)*c;
	/* an exact block, so that a sanitizer sees one byte too far */
	for (unsigned long i = 0; i <= n_mutations; i++) {
		size_t n = size;

		room = size + 128;
		work = malloc(room);
		if (!work)
			exit(1);
		memcpy(work, base, size);
		if (i)
			n = mutate(work, n, room, &seed);
		work = realloc(work, n ? n : 1);
		if (!work)
			exit(1);
		(void)LLVMFuzzerTestOneInput(work, n);
		free(work);
		++*runs;
	}
	free(base);
}

static void run_path(const char *path, unsigned long n_mutations, unsigned long *runs)
{
	struct dirent **names;
	struct stat st;
	int n;

	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		run_file(path, n_mutations, runs);
		return;
	}
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char child[4096];

		(void)snprintf(child, sizeof child, "%s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.')
			run_path(child, n_mutations, runs);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

/* Without arguments: $TENON_FUZZ_SEEDS, else the tree's tests/data/fuzz/X for fuzz_X. */
int main(int argc, char **argv)
{
	const char *count = getenv("FUZZ_MUTATIONS"), *seeds = getenv("TENON_FUZZ_SEEDS");
	unsigned long n = count ? strtoul(count, NULL, 10) : 200, runs = 0;

	for (int i = 1; i < argc; i++)
		run_path(argv[i], n, &runs);
	if (argc == 1) {
		char path[4096];
		const char *name = strrchr(argv[0], '/'), *top = getenv("TENON_SRCDIR");

		name = name ? name + 1 : argv[0];
		name = strncmp(name, "lt-", 3) ? name : name + 3;
		name = strncmp(name, "fuzz_", 5) ? name : name + 5;
		(void)snprintf(path, sizeof path, "%s/tests/data/fuzz/%s", top ? top : ".", name);
		run_path(seeds ? seeds : path, n, &runs);
	}
	(void)printf("replay: %lu executions\n", runs);
	return runs ? 0 : 1;
}
