#include "parax/cli/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "parax/base/error.h"
#include "parax/base/log.h"

namespace parax {
namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

// TFRecord stores checksums so that a checksum of data holding checksums stays good.
uint32_t MaskedCrc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <typename T>
void AppendRaw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Protobuf wire format: varint, fixed64, length-delimited, fixed32.
void Varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}
void Field(std::string& out, int number, uint64_t value) {
  Varint(out, static_cast<uint64_t>(number) << 3);
  Varint(out, value);
}
void Field(std::string& out, int number, double value) {
  Varint(out, static_cast<uint64_t>(number) << 3 | 1);
  AppendRaw(out, value);
}
void Field(std::string& out, int number, std::string_view value) {
  Varint(out, static_cast<uint64_t>(number) << 3 | 2);
  Varint(out, value.size());
  out += value;
}
void Field(std::string& out, int number, float value) {
  Varint(out, static_cast<uint64_t>(number) << 3 | 5);
  AppendRaw(out, value);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
std::string Event(uint64_t step) {
  std::string event;
  Field(event, 1, Now());
  if (step > 0) Field(event, 2, step);
  return event;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

EventWriter::EventWriter(const std::filesystem::path& folder, uint64_t resume_step) {
  static_assert(std::endian::native == std::endian::little);
  // TensorBoard reads files in the order of their names, so the time comes first. "x": two writers
  // of one millisecond get two files.
  for (int64_t time = std::llround(Now() * 1000); file_ == nullptr; ++time) {
    path_ = folder / fmt::format("events.out.tfevents.{}.{}.parax", time, getpid());
    file_ = std::fopen(path_.c_str(), "wbxe");
    if (file_ == nullptr && errno != EEXIST) {
      Fail("cannot open {}: {}", path_.string(), std::strerror(errno));
    }
  }
  std::string version = Event(0);
  Field(version, 3, std::string_view("brain.Event:2"));
  Write(version);
  if (resume_step > 0) {
    std::string session;
    Field(session, 1, uint64_t{1});              // SessionLog.START
    std::string start = Event(resume_step + 1);  // purges steps from this one on
    Field(start, 7, std::string_view(session));
    Write(start);
  }
  Flush();
}

EventWriter::~EventWriter() { std::fclose(file_); }

void EventWriter::Scalar(std::string_view tag, uint64_t step, double value) {
  std::string entry;  // Summary.Value: 1 tag, 2 simple_value
  Field(entry, 1, tag);
  Field(entry, 2, static_cast<float>(value));
  std::string summary;
  Field(summary, 1, std::string_view(entry));
  std::string event = Event(step);
  Field(event, 5, std::string_view(summary));
  Write(event);
}

void EventWriter::Write(const std::string& event) {
  std::string record;
  AppendRaw(record, static_cast<uint64_t>(event.size()));
  AppendRaw(record, MaskedCrc(record));
  record += event;
  AppendRaw(record, MaskedCrc(event));
  if (!failed_) Check(std::fwrite(record.data(), 1, record.size(), file_) == record.size());
}

void EventWriter::Flush() {
  if (!failed_) Check(std::fflush(file_) == 0);
}

void EventWriter::Check(bool written) {
  if (written) return;
  failed_ = true;
  Warn("cannot write {}: {}; training goes on", path_.string(), std::strerror(errno));
}

}  // namespace parax
