// The loops of batch norm, written once for every V (vectors_*_internal.h) and its Mask. Included
// inside a namespace by one .cc for each instruction set. No fused multiply-add, and sums go over
// rows in order, so that the same bits come out whatever the vector's width.

// Vectors of the narrowest strips: whole bytes of bits.
constexpr int kUnitVectors = kLanes < 8 ? 8 / kLanes : 1;
// Rows ahead that are fetched: hardware does not follow strides of a page, and strips of bf16 are
// too short for it in any pass.
constexpr int64_t kAhead = 8;
template <typename T>
constexpr bool kShort = sizeof(T) < sizeof(float);
// Rows whose mean is what squares are taken about; see NormLoops::moments.
constexpr int64_t kPilotRows = 8;

enum class MaskFrom : uint8_t { kNone, kInput, kBits };

// `left`: values there are; a vector beyond them is zero and is not stored. T: float or BFloat16.
template <bool kTail, typename T>
PARAX_TARGET inline V LoadPart(const T* from, int64_t left) {
  if constexpr (!kTail) return Load(from);
  alignas(64) T lanes[kLanes] = {};
  std::copy_n(from, std::clamp<int64_t>(left, 0, kLanes), lanes);
  return Load(lanes);
}
template <bool kTail, typename T>
PARAX_TARGET inline void StorePart(T* to, V value, int64_t left) {
  if constexpr (!kTail) return Store(to, value);
  alignas(64) T lanes[kLanes];
  Store(lanes, value);
  std::copy_n(lanes, std::clamp<int64_t>(left, 0, kLanes), to);
}

template <int kVectors, typename T>
PARAX_TARGET inline void Fetch(const T* from) {
  constexpr int kLine = 64 / sizeof(T);
  for (int v = 0; v < kVectors * kLanes; v += kLine) __builtin_prefetch(from + v);
}

// One bit a channel, kVectors * kLanes of them.
template <int kVectors>
PARAX_TARGET inline uint64_t LoadBits(const uint8_t* from) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, from, kVectors * kLanes / 8);
  return bits;
}
template <int kVectors>
PARAX_TARGET inline void StoreBits(uint8_t* to, uint64_t bits) {
  __builtin_memcpy(to, &bits, kVectors * kLanes / 8);
}

// Calls Body::Run<vectors, tail>(channel) for strips that cover the rows' width. Sums of a strip
// stay in registers while the rows go by.
template <typename Body>
PARAX_TARGET inline void ForStrips(int64_t width, const Body& body) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) body.template Run<4, false>(c);
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) body.template Run<2, false>(c);
  for (; c + kUnitVectors * kLanes <= width; c += kUnitVectors * kLanes) {
    body.template Run<kUnitVectors, false>(c);
  }
  if (c < width) body.template Run<kUnitVectors, true>(c);
}

#define PARAX_EACH for (int v = 0; v < kVectors; ++v)

template <typename T>
struct MomentsBody {
  const NormRows<T>& r;
  float *shift, *sum, *squares;

  template <int kVectors, bool kTail>
  PARAX_TARGET inline void Run(int64_t c) const {
    const int64_t left = r.width - c;
    const T* x = r.x + c;
    V centre[kVectors], s[kVectors], q[kVectors];
    PARAX_EACH centre[v] = s[v] = q[v] = Set(0);
    const int64_t pilot = std::min(kPilotRows, r.rows);
    for (int64_t i = 0; i < pilot; ++i) {
      PARAX_EACH centre[v] += LoadPart<kTail>(x + i * r.stride + v * kLanes, left - v * kLanes);
    }
    PARAX_EACH centre[v] *= Set(1.0f / static_cast<float>(pilot));
    for (int64_t i = 0; i < r.rows; ++i, x += r.stride) {
      if constexpr (!kTail) Fetch<kVectors>(x + kAhead * r.stride);
      PARAX_EACH {
        const V d = LoadPart<kTail>(x + v * kLanes, left - v * kLanes) - centre[v];
        s[v] += d;
        q[v] += d * d;
      }
    }
    PARAX_EACH {
      StorePart<kTail>(shift + c + v * kLanes, centre[v], left - v * kLanes);
      StorePart<kTail>(sum + c + v * kLanes, s[v], left - v * kLanes);
      StorePart<kTail>(squares + c + v * kLanes, q[v], left - v * kLanes);
    }
  }
};

template <typename T>
PARAX_TARGET void Moments(const NormRows<T>& rows, float* shift, float* sum, float* squares) {
  ForStrips(rows.width, MomentsBody<T>{rows, shift, sum, squares});
}

template <bool kAdd, bool kBits, typename T>
struct ApplyBody {
  const NormRows<T>& r;

  template <int kVectors, bool kTail>
  PARAX_TARGET inline void Run(int64_t c) const {
    const int64_t left = r.width - c;
    V mean[kVectors], scale[kVectors], bias[kVectors];
    PARAX_EACH {
      mean[v] = Load(r.mean + c + v * kLanes);  // padded
      scale[v] = Load(r.scale + c + v * kLanes);
      bias[v] = Load(r.bias + c + v * kLanes);
    }
    const V floor = Set(r.relu ? 0.0f : -__builtin_inff());
    int64_t at = c;
    uint8_t* bits_at = kBits ? r.bits + c / 8 : nullptr;
    for (int64_t i = 0; i < r.rows; ++i, at += r.stride) {
      uint64_t bits = 0;
      if constexpr (kShort<T> && !kTail) {
        Fetch<kVectors>(r.x + at + kAhead * r.stride);
        if constexpr (kAdd) Fetch<kVectors>(r.residual + at + kAhead * r.stride);
      }
      PARAX_EACH {
        const int64_t k = at + v * kLanes;
        V y = (LoadPart<kTail>(r.x + k, left - v * kLanes) - mean[v]) * scale[v] + bias[v];
        if constexpr (kAdd) y += LoadPart<kTail>(r.residual + k, left - v * kLanes);
        if constexpr (kBits) bits |= ToBits(Positive(y)) << (v * kLanes);
        StorePart<kTail>(r.out + k, Floor(floor, y), left - v * kLanes);
      }
      if constexpr (kBits) {
        StoreBits<kVectors>(bits_at, bits);
        bits_at += NormBitBytes(r.width);
      }
    }
  }
};

template <typename T>
PARAX_TARGET void Apply(const NormRows<T>& rows) {
  if (rows.residual == nullptr) return ForStrips(rows.width, ApplyBody<false, false, T>{rows});
  if (rows.bits == nullptr) return ForStrips(rows.width, ApplyBody<true, false, T>{rows});
  ForStrips(rows.width, ApplyBody<true, true, T>{rows});
}

// x - mean and the masked gradient, a row of a strip after another.
template <MaskFrom kMask, int kVectors, bool kTail, typename T>
struct GradientRows {
  const NormRows<T>& r;
  int64_t at;    // of the row in hand
  int64_t left;  // channels from the strip's first on
  const uint8_t* bits_at;
  uint64_t bits = 0;
  V mean[kVectors], scale[kVectors], bias[kVectors];

  PARAX_TARGET inline GradientRows(const NormRows<T>& rows, int64_t c)
      : r(rows),
        at(c),
        left(rows.width - c),
        bits_at(kMask == MaskFrom::kBits ? rows.bits + c / 8 : nullptr) {
    PARAX_EACH {
      mean[v] = Load(r.mean + c + v * kLanes);  // padded
      scale[v] = Load(r.scale + c + v * kLanes);
      if constexpr (kMask == MaskFrom::kInput) bias[v] = Load(r.bias + c + v * kLanes);
    }
  }
  PARAX_TARGET inline void Begin() {
    if constexpr (kMask == MaskFrom::kBits) bits = LoadBits<kVectors>(bits_at);
  }
  PARAX_TARGET inline void Next() {
    at += r.stride;
    if constexpr (kMask == MaskFrom::kBits) bits_at += NormBitBytes(r.width);
  }
  PARAX_TARGET inline void FetchAhead() const {
    Fetch<kVectors>(r.x + at + kAhead * r.stride);
    Fetch<kVectors>(r.dy + at + kAhead * r.stride);
  }
  PARAX_TARGET inline V Deviation(int v) const {
    return LoadPart<kTail>(r.x + at + v * kLanes, left - v * kLanes) - mean[v];
  }
  PARAX_TARGET inline V Gradient(int v, V deviation) const {
    const V g = LoadPart<kTail>(r.dy + at + v * kLanes, left - v * kLanes);
    if constexpr (kMask == MaskFrom::kInput)
      return Keep(Positive(deviation * scale[v] + bias[v]), g);
    if constexpr (kMask == MaskFrom::kBits) return Keep(FromBits(bits >> (v * kLanes)), g);
    return g;
  }
  PARAX_TARGET inline void Write(int v, V value) const {
    StorePart<kTail>(r.out + at + v * kLanes, value, left - v * kLanes);
  }
};

template <MaskFrom kMask, bool kWrite, typename T>
struct SumsBody {
  const NormRows<T>& r;
  float *sum, *dot;

  template <int kVectors, bool kTail>
  PARAX_TARGET inline void Run(int64_t c) const {
    GradientRows<kMask, kVectors, kTail, T> rows(r, c);
    V s[kVectors], p[kVectors];
    PARAX_EACH s[v] = p[v] = Set(0);
    for (int64_t i = 0; i < r.rows; ++i, rows.Next()) {
      rows.Begin();
      if constexpr (!kTail) rows.FetchAhead();
      PARAX_EACH {
        const V d = rows.Deviation(v), g = rows.Gradient(v, d);
        if constexpr (kWrite) rows.Write(v, g);
        s[v] += g;
        p[v] += g * d;
      }
    }
    PARAX_EACH {
      StorePart<kTail>(sum + c + v * kLanes, s[v], rows.left - v * kLanes);
      StorePart<kTail>(dot + c + v * kLanes, p[v], rows.left - v * kLanes);
    }
  }
};

template <MaskFrom kMask, typename T>
PARAX_TARGET inline void SumsMasked(const NormRows<T>& rows, float* sum, float* dot) {
  if (rows.out == nullptr) return ForStrips(rows.width, SumsBody<kMask, false, T>{rows, sum, dot});
  ForStrips(rows.width, SumsBody<kMask, true, T>{rows, sum, dot});
}

template <typename T>
PARAX_TARGET void Sums(const NormRows<T>& rows, float* sum, float* dot) {
  if (!rows.relu) return SumsMasked<MaskFrom::kNone>(rows, sum, dot);
  if (rows.bits != nullptr) return SumsMasked<MaskFrom::kBits>(rows, sum, dot);
  SumsMasked<MaskFrom::kInput>(rows, sum, dot);
}

template <MaskFrom kMask, typename T>
struct InputGradientBody {
  const NormRows<T>& r;

  template <int kVectors, bool kTail>
  PARAX_TARGET inline void Run(int64_t c) const {
    GradientRows<kMask, kVectors, kTail, T> rows(r, c);
    V slope[kVectors], shift[kVectors];
    PARAX_EACH {
      slope[v] = Load(r.slope + c + v * kLanes);
      shift[v] = Load(r.shift + c + v * kLanes);
    }
    for (int64_t i = 0; i < r.rows; ++i, rows.Next()) {
      rows.Begin();
      if constexpr (kShort<T> && !kTail) rows.FetchAhead();
      PARAX_EACH {
        const V d = rows.Deviation(v), g = rows.Gradient(v, d);
        rows.Write(v, g * rows.scale[v] + (d * slope[v] + shift[v]));
      }
    }
  }
};

template <typename T>
PARAX_TARGET void InputGradient(const NormRows<T>& rows) {
  if (!rows.relu) return ForStrips(rows.width, InputGradientBody<MaskFrom::kNone, T>{rows});
  if (rows.bits != nullptr) {
    return ForStrips(rows.width, InputGradientBody<MaskFrom::kBits, T>{rows});
  }
  ForStrips(rows.width, InputGradientBody<MaskFrom::kInput, T>{rows});
}

#undef PARAX_EACH

constexpr NormLoopSet kLoops = {
    {Moments<float>, Apply<float>, Sums<float>, InputGradient<float>},
    {Moments<BFloat16>, Apply<BFloat16>, Sums<BFloat16>, InputGradient<BFloat16>}};
