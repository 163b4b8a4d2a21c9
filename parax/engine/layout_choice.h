#pragma once

#include <filesystem>

#include "parax/engine/trainer.h"

namespace parax {

// Whether training is faster with blocked activations than with channels-last ones here: both are
// timed for a few iterations on random input, all instances running. Neither is faster on every CPU
// or for every network. Results are the same mathematics, but not the same bits.
//
// Answers are kept in `cache` (a JSON file, made when it is not there; "" for none) by network,
// micro-batch, instances, threads and MachineKey(); a cache that can't be read or written is done
// without.
bool BlockedIsFaster(const Graph& graph, const TrainerOptions& options,
                     const std::filesystem::path& cache);

// $XDG_CACHE_HOME/parax/layouts.json, or ~/.cache/...; "" without a home.
std::filesystem::path LayoutCachePath();

}  // namespace parax
