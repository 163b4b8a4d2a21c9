#include "parax/engine/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "parax/base/error.h"
#include "parax/base/file.h"

namespace parax {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr std::string_view kMetadataKey = "__metadata__";

// Names come from the file: quoted and escaped, a message stays one line.
std::string Quoted(std::string_view name) {
  return Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
}

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent < 31) {
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  } else {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// One element of the file as a float; false when float32 cannot hold it.
using Convert = bool (*)(const std::byte* from, float& to);

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Integer>
bool ConvertInteger(const std::byte* from, float& to) {
  const auto value = Load<Integer>(from);
  to = static_cast<float>(value);
  // Below 2^53 double holds the integer and the float exactly, so comparing in it is exact.
  return std::abs(static_cast<double>(value)) < 0x1p53 &&
         static_cast<double>(to) == static_cast<double>(value);
}

bool ConvertDouble(const std::byte* from, float& to) {
  const auto value = Load<double>(from);
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) return false;
  to = static_cast<float>(value);
  return true;
}

struct FileType {
  std::string_view name;
  uint64_t bytes;
  Convert convert;
};
constexpr FileType kFileTypes[] = {
    {"F32", 4, [](const std::byte* from, float& to) { return to = Load<float>(from), true; }},
    {"BF16", 2,
     [](const std::byte* from, float& to) {
       return to = std::bit_cast<float>(uint32_t{Load<uint16_t>(from)} << 16), true;
     }},
    {"F16", 2,
     [](const std::byte* from, float& to) { return to = HalfToFloat(Load<uint16_t>(from)), true; }},
    {"F64", 8, ConvertDouble},
    {"I64", 8, ConvertInteger<int64_t>},
    {"I32", 4, ConvertInteger<int32_t>},
    {"U8", 1, ConvertInteger<uint8_t>},
    {"BOOL", 1, ConvertInteger<uint8_t>},
};

// What the header says of one tensor, checked on its own.
struct Entry {
  std::string name;
  const FileType* type = nullptr;
  Dims dims;
  uint64_t count = 1;
  uint64_t begin = 0, end = 0;
};

bool IsPickled(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 4));
  if (start == "PK\x03\x04" || start.starts_with("\x80\x02")) return true;
  return std::ranges::any_of(std::initializer_list<std::string_view>{".pth", ".pt", ".bin", ".pkl"},
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

std::string_view HeaderText(std::span<const std::byte> bytes, std::string_view name) {
  const uint64_t length = bytes.size() < 8 ? 0 : Load<uint64_t>(bytes.data());
  const bool fits = length >= 2 && length <= kMaxHeaderBytes && length <= bytes.size() - 8;
  if (fits && bytes[8] == std::byte{'{'}) {
    return {reinterpret_cast<const char*>(bytes.data()) + 8, length};
  }
  if (IsPickled(bytes, name)) {
    Fail("{} is a pickled PyTorch file: convert it with scripts/to-safetensors.py {}", name, name);
  }
  if (bytes.size() < 8) Fail("{}: not a safetensors file: only {} bytes", name, bytes.size());
  if (!fits && length <= kMaxHeaderBytes && length > bytes.size() - 8) {
    Fail("{}: cut short: its header has {} bytes, the file {}", name, length, bytes.size());
  }
  Fail("{}: not a safetensors file: it starts with no valid header", name);
}

// The header as JSON. Repeated keys, which a JSON library would silently drop, and nesting deeper
// than the format has are refused while parsing.
Json ParseHeader(std::string_view text, std::string_view name) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 3) Fail("{}: the header is nested too deeply", name);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed).second) {
      Fail("{}: {} appears twice in the header", name, Quoted(parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception&) {
    Fail("{}: the header is not valid JSON", name);
  }
}

uint64_t Unsigned(const Json& value, const Entry& entry, std::string_view file) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{1} << 62) {
    Fail("{}: tensor {}: sizes and offsets must be whole numbers", file, Quoted(entry.name));
  }
  return value.get<uint64_t>();
}

Entry ParseEntry(const std::string& name, const Json& json, std::string_view file) {
  Entry entry{.name = name, .dims = {}};
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string() || !json["shape"].is_array() ||
      !json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
    Fail("{}: tensor {} lacks dtype, shape or data_offsets", file, Quoted(name));
  }
  const auto& type_name = json["dtype"].get_ref<const std::string&>();
  entry.type = std::ranges::find(kFileTypes, type_name, &FileType::name);
  if (entry.type == std::end(kFileTypes)) {
    Fail("{}: tensor {}: dtype {} cannot be read", file, Quoted(name), Quoted(type_name));
  }
  uint64_t bytes = entry.type->bytes;
  bool overflow = false;
  for (const Json& size : json["shape"]) {
    entry.dims.push_back(static_cast<int64_t>(Unsigned(size, entry, file)));
    const auto dim = static_cast<uint64_t>(entry.dims.back());
    overflow |= __builtin_mul_overflow(bytes, dim, &bytes);
    entry.count *= dim;
  }
  entry.begin = Unsigned(json["data_offsets"][0], entry, file);
  entry.end = Unsigned(json["data_offsets"][1], entry, file);
  if (overflow || entry.begin > entry.end || entry.end - entry.begin != bytes) {
    Fail("{}: tensor {}: its data_offsets do not fit its shape", file, Quoted(name));
  }
  return entry;
}

// Entries in order of offset; they must fill the data section exactly.
void CheckCoverage(std::vector<Entry>& entries, uint64_t data_bytes, std::string_view file) {
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes) {
      Fail("{}: cut short: tensor {} needs {} bytes of data, the file has {}", file,
           Quoted(entry.name), entry.end, data_bytes);
    }
    if (entry.begin != at) {
      Fail("{}: tensor {} {}", file, Quoted(entry.name),
           entry.begin < at ? "overlaps another" : "leaves a gap before it");
    }
    at = entry.end;
  }
  if (at != data_bytes) Fail("{}: {} bytes behind the last tensor", file, data_bytes - at);
}

Metadata ParseMetadata(const Json& json, std::string_view file) {
  Metadata metadata;
  if (!json.is_object()) Fail("{}: {} must map strings to strings", file, kMetadataKey);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) Fail("{}: {} must map strings to strings", file, kMetadataKey);
    metadata[key] = value;
  }
  return metadata;
}

}  // namespace

Safetensors ParseSafetensors(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text = HeaderText(bytes, name);
  const Json header = ParseHeader(text, name);
  Safetensors result;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == kMetadataKey) {
      result.metadata = ParseMetadata(value, name);
    } else {
      entries.push_back(ParseEntry(key, value, name));
    }
  }
  const auto data = bytes.subspan(8 + text.size());
  CheckCoverage(entries, data.size(), name);
  for (Entry& entry : entries) {
    NamedTensor tensor{std::move(entry.dims), std::vector<float>(entry.count)};
    const std::byte* from = data.data() + entry.begin;
    bool exact = true;
    for (float& value : tensor.values) {
      exact &= entry.type->convert(from, value);
      from += entry.type->bytes;
    }
    if (!exact && !entry.name.ends_with("num_batches_tracked")) {
      Fail("{}: tensor {} has {} values that float32 cannot hold", name, Quoted(entry.name),
           entry.type->name);
    }
    result.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return result;
}

Safetensors ReadSafetensors(const std::filesystem::path& path) {
  const MappedFile file(path);
  return ParseSafetensors(file.bytes(), path.string());
}

std::vector<std::span<const std::byte>> SafetensorsImage::pieces() const {
  std::vector<std::span<const std::byte>> all = {std::as_bytes(std::span(header))};
  all.insert(all.end(), data.begin(), data.end());
  return all;
}

SafetensorsImage MakeSafetensors(const TensorMap& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  SafetensorsImage image;
  uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    uint64_t count = 1;
    for (const int64_t dim : tensor.dims) count *= static_cast<uint64_t>(dim);
    if (count != tensor.values.size() || name == kMetadataKey) {
      Fail("tensor {} cannot be written: {} values for a shape of {}", Quoted(name),
           tensor.values.size(), count);
    }
    image.data.push_back(std::as_bytes(std::span(tensor.values)));
    const uint64_t end = at + image.data.back().size();
    header[name] = {{"dtype", "F32"}, {"shape", tensor.dims}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data stays aligned, as the reference writes it
  const uint64_t length = text.size();
  image.header.assign(reinterpret_cast<const char*>(&length), 8);
  image.header += text;
  return image;
}

void WriteSafetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata) {
  WriteFileAtomically(path, MakeSafetensors(tensors, metadata).pieces());
}

}  // namespace parax
