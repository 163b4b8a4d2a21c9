// Not an ordinary header: gemm_avx2.cc and gemm_avx512.cc include it once each, after they have
// said what a vector is (vectors_*_internal.h). Every sum goes over the depth in order, whatever
// the vector's width, so both give the same bits.

constexpr bool kWide = kLanes == 16;  // 32 registers of 16 floats; else 16 of 8
constexpr int64_t kLine = 16;         // floats of a cache line

PARAX_TARGET inline void Fetch(const float* from, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
}

// Rows x (Vectors * kLanes) of the product, kept in registers; b's rows lie `b_row` floats apart.
template <int Rows, int Vectors>
PARAX_TARGET inline void RowsTile(const float* const* a, int64_t a_offset, const float* b,
                                  int64_t b_row, int64_t depth, float* const* c, int64_t column,
                                  bool accumulate, const Finish* finish) {
  const float* row[Rows];
  V sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    row[r] = a[r] + a_offset;
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j)
      sum[r][j] = accumulate ? Load(c[r] + column + j * kLanes) : Set(0.0f);
  }
  for (int64_t k = 0; k < depth; ++k) {
    V right[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) right[j] = Load(b + k * b_row + j * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const V left = Set(row[r][k]);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sum[r][j] = Fma(left, right[j], sum[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      const int64_t at = column + j * kLanes;
      StoreFinished(finish, sum[r][j], at, c[r] + at);
    }
}

// Rows from `r` on; what a tile of `Rows` leaves over goes to smaller ones.
template <int Rows, int Vectors>
PARAX_TARGET inline void RowsStrip(const GemmRows& p, const float* b, int64_t b_row, int64_t column,
                                   bool fetch, int64_t r = 0) {
  for (; r + Rows <= p.rows; r += Rows) {
    if (fetch)
      for (int64_t i = r; i < r + Rows; ++i) Fetch(p.next[i] + p.a_offset, p.depth);
    RowsTile<Rows, Vectors>(p.a + r, p.a_offset, b, b_row, p.depth, p.c + r, column, p.accumulate,
                            p.finish);
  }
  if constexpr (Rows > 1)
    if (r < p.rows) RowsStrip<Rows / 2, Vectors>(p, b, b_row, column, fetch, r);
}

PARAX_TARGET void MultiplyRows(const GemmRows& p) {
  for (int64_t group = p.first_column; group < p.last_column; group += kGemmGroup) {
    const int64_t width = std::min(kGemmGroup, p.columns - group);
    const float* b = p.b + group * p.b_depth + p.b_first * width;
    for (int64_t at = 0; at < width;) {
      const bool fetch = p.next != nullptr && group + at == p.first_column;
      const int64_t left = width - at, column = group + at;
      if (kWide && left >= 64) {
        RowsStrip<6, kWide ? 4 : 1>(p, b + at, width, column, fetch);
        at += 64;
      } else if (kWide && left >= 32) {
        RowsStrip<8, kWide ? 2 : 1>(p, b + at, width, column, fetch);
        at += 32;
      } else {
        RowsStrip<kWide ? 8 : 6, kWide ? 1 : 2>(p, b + at, width, column, fetch);
        at += 16;
      }
    }
  }
}

// Outer x (Vectors * kLanes) of the product, kept in registers.
template <int Outer, int Vectors>
PARAX_TARGET inline void OuterTile(const float* const* a, int64_t first, const float* b,
                                   int64_t b_row, int64_t depth, float* c, int64_t c_row,
                                   bool accumulate) {
  V sum[Outer][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Outer; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j)
      sum[r][j] = accumulate ? Load(c + r * c_row + j * kLanes) : Set(0.0f);
  for (int64_t k = 0; k < depth; ++k) {
    const float* left = a[k] + first;
    V right[Vectors];
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) right[j] = Load(b + k * b_row + j * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Outer; ++r)
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) sum[r][j] = Fma(Set(left[r]), right[j], sum[r][j]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < Outer; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) Store(c + r * c_row + j * kLanes, sum[r][j]);
}

PARAX_TARGET void MultiplyOuter(const GemmOuter& p) {
  constexpr int kOuter = kWide ? 8 : 4;
  const int64_t tiles = p.outer / kOuter * ((p.columns + 31) / 32);
  int64_t tile = 0, fetched = 0;  // a few pixels between two tiles: more at once would stall
  for (int64_t first = 0; first < p.outer; first += kOuter) {
    float* c = p.c + first * p.c_row;
    for (int64_t column = 0; column < p.columns;) {
      for (++tile; p.next_a != nullptr && fetched < std::min(p.depth, p.depth * tile / tiles);
           ++fetched) {
        Fetch(p.next_a[fetched], p.outer);
        Fetch(p.next_b[fetched], p.columns);
      }
      const int64_t width =
          std::min(kGemmOuterGroup, p.columns - column / kGemmOuterGroup * kGemmOuterGroup);
      const float* b =
          p.b + column / kGemmOuterGroup * kGemmOuterGroup * p.depth + column % kGemmOuterGroup;
      if (kWide && p.columns - column >= 32) {
        OuterTile<kOuter, 2>(p.a, first, b, width, p.depth, c + column, p.c_row, p.accumulate);
        column += 32;
      } else {
        OuterTile<kOuter, 16 / kLanes>(p.a, first, b, width, p.depth, c + column, p.c_row,
                                       p.accumulate);
        column += 16;
      }
    }
  }
}

constexpr GemmLoops kLoops = {MultiplyRows, MultiplyOuter};
