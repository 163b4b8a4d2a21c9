// A co-tenant: copies memory on one core (a STREAM-like triad) until it is stopped, as a neighbour
// on a shared server might. Prints GB/s at the end.
//   memory_hog CPU [SECONDS]

#include <sched.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

volatile std::sig_atomic_t stopped = 0;

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "memory_hog: say on which CPU, such as memory_hog 1 [SECONDS]\n");
    return 2;
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(std::atoi(argv[1])), &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    std::perror("memory_hog: CPU");
    return 1;
  }
  std::signal(SIGTERM, [](int) { stopped = 1; });
  std::signal(SIGINT, [](int) { stopped = 1; });
  constexpr size_t kFloats = size_t{32} << 20;  // 128 MiB each: beyond the caches
  std::vector<float> a(kFloats, 1), b(kFloats, 2), c(kFloats, 3);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const double most = argc > 2 ? std::atof(argv[2]) : 1e9;
  double seconds = 0, bytes = 0;
  while (stopped == 0 && seconds < most) {
    for (size_t i = 0; i < kFloats; ++i) a[i] = b[i] + 0.5f * c[i];
    b[0] = a[kFloats - 1];  // the next round needs this one
    bytes += 3.0 * static_cast<double>(kFloats) * sizeof(float);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::printf("%.1f GB/s\n", bytes / seconds / 1e9);
  return 0;
}
