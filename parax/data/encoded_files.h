#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parax/data/dataset.h"
#include "parax/numa/arena.h"

namespace parax {

// The files of a split as bytes. When they all fit into `keep_bytes`, each is read from disk once
// and kept. Read() may be called by many threads, each with its own buffer.
class EncodedFiles {
 public:
  struct Buffer {  // reused from file to file
    std::string path;
    std::vector<std::byte> bytes;
  };

  EncodedFiles(const Split& split, size_t keep_bytes);  // the split must outlive this

  // Valid until the buffer's next use. `why` tells in one line what went wrong, else stays empty.
  std::span<const std::byte> Read(int64_t i, Buffer& buffer, std::string& why);

 private:
  enum State : uint8_t { kNone, kWriting, kKept };

  const Split& split_;
  Arena kept_;
  std::vector<uint64_t> offsets_;                 // of each file in kept_; empty: nothing is kept
  std::unique_ptr<std::atomic<State>[]> states_;  // kKept is stored after the bytes
};

}  // namespace parax
