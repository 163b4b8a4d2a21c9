#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parax/numa/seat.h"

namespace parax {

// Bytes a second, read and written together, that the first 1, 2, ... n of the seats reach when
// they copy memory at the same time: element k - 1 is for k seats. For seats of one domain, all of
// whose cores copy; buffers are larger than the caches and lie on `os_node` (-1: wherever first
// touched). Takes about a second. Setup code; throws Error when the memory cannot be had.
// `lost` (may be null): the largest part of its time that a core spent on other programs.
std::vector<double> MeasureCopyBandwidth(const std::vector<Seat>& seats, int os_node = -1,
                                         double* lost = nullptr);

// The same, measured once: kept in `file` under `machine` (Topology::cpu_model), node and seats,
// unless a core spent more than `most_lost` of its time on other programs meanwhile. A file that is
// broken or cannot be written is done without, after one line that says so; "": nothing is kept.
std::vector<double> CopyBandwidth(const std::vector<Seat>& seats, int os_node,
                                  const std::string& machine, const std::filesystem::path& file,
                                  double most_lost = 0.1);

// bandwidth.json in CacheFolder(); "" without a home.
std::filesystem::path BandwidthCachePath();

}  // namespace parax
