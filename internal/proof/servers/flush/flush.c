// Loaded before the C library: a flush sleeps first. The file that TENURE_FLUSH names begins
// with the microseconds; then comes the number of flushes that have ended.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned int *shared;

__attribute__((constructor)) static void load(void) {
	const char *path = getenv("TENURE_FLUSH");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, 2 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		shared = at;
	close(fd);
}

static int flush(int number, int fd) {
	unsigned int us = shared ? shared[0] : 0;
	struct timespec left = {us / 1000000, us % 1000000 * 1000L};
	while (us && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left))
		;
	int result = syscall(number, fd);
	if (shared)
		__atomic_add_fetch(&shared[1], 1, __ATOMIC_SEQ_CST);
	return result;
}

int fsync(int fd) {
	return flush(SYS_fsync, fd);
}

int fdatasync(int fd) {
	return flush(SYS_fdatasync, fd);
}
