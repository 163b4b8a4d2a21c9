#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace parax {

// Writes scalars as a TensorBoard event file (TFRecord framing, protobuf Event messages).
// https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/{event,summary}.proto
class EventWriter {
 public:
  // A new file in `folder`. `resume_step` > 0: a session start at that step, upon which TensorBoard
  // drops what earlier files say of later ones. Throws Error.
  EventWriter(const std::filesystem::path& folder, uint64_t resume_step);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Warns once and writes no more when the disk is full: training is worth more than its log, and
  // nothing behind a cut record can be read.
  void Scalar(std::string_view tag, uint64_t step, double value);
  void Flush();

 private:
  void Write(const std::string& event);
  void Check(bool written);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
uint32_t Crc32c(std::string_view bytes);

}  // namespace parax
