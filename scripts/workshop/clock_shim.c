/* A clock that tests can move: loaded into workerd, it adds an offset to every clock it reads.
 *
 * The offset is eight bytes in a file (nanoseconds, little-endian), mapped into memory: writing the
 * file moves the clock of a running process at once. An alarm of tomorrow is then due today, which
 * is the only way to prove days of behaviour in a test of seconds.
 *
 * workerd sleeps by the kernel's clock, which nobody moves, so after a change something has to wake
 * it; a request does. Waits on condition variables name a time of our clock and are translated back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000LL

static volatile int64_t still = 0;
static volatile int64_t *offset = &still;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("WORKSHOP_CLOCK_FILE");
  if (!path) return;
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(int64_t)) != 0) {
    /* A test that believes it can move this clock must not run with one that stands. */
    _exit(97);
  }
  void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) _exit(97);
  offset = memory;
}

static void shift(struct timespec *when, int64_t nanoseconds) {
  int64_t sum = when->tv_nsec + nanoseconds % NANOSECONDS;
  when->tv_sec += nanoseconds / NANOSECONDS;
  if (sum >= NANOSECONDS) {
    sum -= NANOSECONDS;
    when->tv_sec += 1;
  } else if (sum < 0) {
    sum += NANOSECONDS;
    when->tv_sec -= 1;
  }
  when->tv_nsec = sum;
}

/* The clocks of threads and processes count work done, not time passed; they are left alone. */
static int tells_time(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      return 1;
    default:
      return 0;
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && tells_time(clock)) shift(now, *offset);
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t *now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec real = *until;
  shift(&real, -*offset);
  return wait(condition, mutex, &real);
}
