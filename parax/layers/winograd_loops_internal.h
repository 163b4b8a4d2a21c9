// Not an ordinary header: winograd_avx2.cc and winograd_avx512.cc include it once each, after they
// have said what a vector is: V, kLanes, kMostRows, kMostPanels, Set, Load, Store, Fma (a * b + c),
// and PARAX_TARGET, the attribute that compiles a function for the instruction set. Every sum has
// the same order whatever the vector's width, so both give the same bits.

constexpr int kPanelVectors = kWinogradPanel / kLanes;

// What the transforms are made of; a and b are the interpolation points +-a, +-b
// (winograd_internal.h).
constexpr float kA = kWinogradA, kB = kWinogradB, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kZeroScale = 1 / (kA2 * kB2);
constexpr float kAScale = 1 / (2 * kA2 * (kA2 - kB2)), kBScale = 1 / (2 * kB2 * (kB2 - kA2));

// B^T: six values of the input, six of its transform.
PARAX_TARGET inline void TransformInput(const V* d, V* v) {
  const V a2 = Set(kA2), b2 = Set(kB2), both = Set(-(kA2 + kB2)), product = Set(kA2 * kB2);
  const V even_a = d[4] - b2 * d[2], odd_a = Set(kA) * (d[3] - b2 * d[1]);
  const V even_b = d[4] - a2 * d[2], odd_b = Set(kB) * (d[3] - a2 * d[1]);
  v[0] = Fma(product, d[0], Fma(both, d[2], d[4]));
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
  v[5] = Fma(product, d[1], Fma(both, d[3], d[5]));
}

// A^T: six values of the product, four of the output.
PARAX_TARGET inline void TransformOutput(const V* m, V* y) {
  const V sum_a = m[1] + m[2], difference_a = m[1] - m[2];
  const V sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  y[0] = m[0] + (sum_a + sum_b);
  y[1] = Fma(Set(kA), difference_a, Set(kB) * difference_b);
  y[2] = Fma(Set(kA2), sum_a, Set(kB2) * sum_b);
  y[3] = Fma(Set(kA * kA2), difference_a, Fma(Set(kB * kB2), difference_b, m[5]));
}

// A: four values of the output's gradient, six of its transform.
PARAX_TARGET inline void TransformOutputGrad(const V* y, V* d) {
  const V even_a = Fma(Set(kA2), y[2], y[0]), odd_a = Fma(Set(kA * kA2), y[3], Set(kA) * y[1]);
  const V even_b = Fma(Set(kB2), y[2], y[0]), odd_b = Fma(Set(kB * kB2), y[3], Set(kB) * y[1]);
  d[0] = y[0];
  d[1] = even_a + odd_a;
  d[2] = even_a - odd_a;
  d[3] = even_b + odd_b;
  d[4] = even_b - odd_b;
  d[5] = y[3];
}

// G: three weights, six values of their transform.
PARAX_TARGET inline void TransformWeights(const V* g, V* u) {
  const V even_a = Set(kAScale) * Fma(Set(kA2), g[2], g[0]), odd_a = Set(kAScale * kA) * g[1];
  const V even_b = Set(kBScale) * Fma(Set(kB2), g[2], g[0]), odd_b = Set(kBScale * kB) * g[1];
  u[0] = Set(kZeroScale) * g[0];
  u[1] = even_a + odd_a;
  u[2] = even_a - odd_a;
  u[3] = even_b + odd_b;
  u[4] = even_b - odd_b;
  u[5] = g[2];
}

// G^T: six values, three gradients of weights.
PARAX_TARGET inline void TransformWeightGrad(const V* u, V* g) {
  const V sum_a = Set(kAScale) * (u[1] + u[2]), difference_a = Set(kAScale * kA) * (u[1] - u[2]);
  const V sum_b = Set(kBScale) * (u[3] + u[4]), difference_b = Set(kBScale * kB) * (u[3] - u[4]);
  g[0] = Fma(Set(kZeroScale), u[0], sum_a + sum_b);
  g[1] = difference_a + difference_b;
  g[2] = Fma(Set(kA2), sum_a, Fma(Set(kB2), sum_b, u[5]));
}

// The transform of a From x From tile into a To x To one: columns, then rows.
template <int From, int To, void (*Transform)(const V*, V*)>
PARAX_TARGET inline void Transform2d(const V (&in)[From][From], V (&out)[To][To]) {
  V half[To][From];
#pragma GCC unroll 6
  for (int j = 0; j < From; ++j) {
    V column[From], result[To];
#pragma GCC unroll 6
    for (int i = 0; i < From; ++i) column[i] = in[i][j];
    Transform(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < To; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < To; ++i) Transform(half[i], out[i]);
}

// A Size x Size window of x, zero outside the image, transformed into 6 x 6 values `stride` apart,
// for every channel.
template <int Size, void (*Transform)(const V*, V*)>
PARAX_TARGET inline void GatherTile(const Panels& x, const float* data, const WinogradWindow& w,
                                    float* v, int64_t stride) {
  const bool inside =
      w.top >= 0 && w.left >= 0 && w.top + Size <= x.height && w.left + Size <= x.width_pixels;
  for (int64_t block = 0; block < x.blocks; ++block) {
    const float* panel = data + (w.image * x.blocks + block) * x.panel_floats() +
                         (w.top * x.width_pixels + w.left) * x.lanes;
    for (int64_t lane = 0; lane < x.lanes; lane += kLanes, v += kLanes) {
      V in[Size][Size], out[6][6];
      for (int i = 0; i < Size; ++i) {
        const bool row_inside = w.top + i >= 0 && w.top + i < x.height;
        for (int j = 0; j < Size; ++j) {
          const bool there =
              inside || (row_inside && w.left + j >= 0 && w.left + j < x.width_pixels);
          in[i][j] = there ? Load(panel + (i * x.width_pixels + j) * x.lanes + lane) : Set(0.0f);
        }
      }
      Transform2d<Size, 6, Transform>(in, out);
      for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 6; ++j) Store(v + (6 * i + j) * stride, out[i][j]);
    }
  }
}

PARAX_TARGET void GatherInput(const Panels& x, const float* data, const WinogradWindow& window,
                              float* v, int64_t stride) {
  GatherTile<6, TransformInput>(x, data, window, v, stride);
}

PARAX_TARGET void GatherOutputGrad(const Panels& y, const float* data, const WinogradWindow& window,
                                   float* v, int64_t stride) {
  GatherTile<4, TransformOutputGrad>(y, data, window, v, stride);
}

PARAX_TARGET void ScatterOutput(const float* m, int64_t stride, const Panels& y, float* data,
                                const WinogradWindow& w, const Finish* finish) {
  const int rows = static_cast<int>(std::min<int64_t>(4, y.height - w.top));
  const int columns = static_cast<int>(std::min<int64_t>(4, y.width_pixels - w.left));
  for (int64_t block = 0; block < y.blocks; ++block) {
    float* panel = data + (w.image * y.blocks + block) * y.panel_floats() +
                   (w.top * y.width_pixels + w.left) * y.lanes;
    for (int64_t lane = 0; lane < y.lanes; lane += kLanes, m += kLanes) {
      V in[6][6], out[4][4];
      for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 6; ++j) in[i][j] = Load(m + (6 * i + j) * stride);
      Transform2d<6, 4, TransformOutput>(in, out);
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j)
          StoreFinished(finish, out[i][j], block * y.lanes + lane,
                        panel + (i * y.width_pixels + j) * y.lanes + lane);
    }
  }
}

// The transforms of 16 outputs of input k: g's nine rows of 16 lie `plane` floats apart.
PARAX_TARGET inline void PackRow(const float* g, int64_t plane, bool rotated, float* u,
                                 int64_t stride) {
  for (int lane = 0; lane < kWinogradPanel; lane += kLanes) {
    V in[3][3], out[6][6];
    for (int i = 0; i < 9; ++i) in[i / 3][i % 3] = Load(g + lane + (rotated ? 8 - i : i) * plane);
    Transform2d<3, 6, TransformWeights>(in, out);
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) Store(u + lane + (6 * i + j) * stride, out[i][j]);
  }
}

PARAX_TARGET void PackWeights(const float* g, int64_t inputs, int64_t outputs, bool rotated,
                              int64_t first_panel, int64_t last_panel, float* u, int64_t stride) {
  constexpr int64_t kBlock = kWinogradPanel * kWinogradPanel;
  const int64_t plane = inputs * outputs;
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    for (int64_t k = 0; k < inputs; k += kWinogradPanel) {
      alignas(64) float turned[9 * kBlock];
      for (int tap = 0; rotated && tap < 9; ++tap)
        Transpose(g + tap * plane + panel * kWinogradPanel * inputs + k, inputs, kWinogradPanel,
                  kWinogradPanel, turned + tap * kBlock, kWinogradPanel);
      for (int64_t i = 0; i < kWinogradPanel; ++i) {
        const float* from =
            rotated ? turned + i * kWinogradPanel : g + (k + i) * outputs + panel * kWinogradPanel;
        PackRow(from, rotated ? kBlock : plane, rotated,
                u + (panel * inputs + k + i) * kWinogradPanel, stride);
      }
    }
  }
}

PARAX_TARGET void UnpackWeightGrad(const float* u, int64_t stride, int64_t plane, int64_t outputs,
                                   float* g) {
  for (int64_t at = 0; at < outputs; at += kLanes) {
    V in[6][6], out[3][3];
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) in[i][j] = Load(u + (6 * i + j) * stride + at);
    Transform2d<6, 3, TransformWeightGrad>(in, out);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) Store(g + (3 * i + j) * plane + at, out[i][j]);
  }
}

// Rows x (Panels * 16) of the product, kept in registers.
template <int Rows, int PanelCount>
PARAX_TARGET inline void MultiplyTile(const WinogradProduct& p, const float* a, const float* b,
                                      float* c) {
  constexpr int kVectors = PanelCount * kPanelVectors;
  V sum[Rows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sum[r][j] = p.accumulate ? Load(c + r * p.c_row + j * kLanes) : Set(0.0f);
  for (int64_t k = 0; k < p.depth; ++k) {
    V right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      right[j] =
          Load(b + k * p.b_depth + j / kPanelVectors * p.b_panel + j % kPanelVectors * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V left = Set(a[r * p.a_row + k * p.a_depth]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[r][j] = Fma(left, right[j], sum[r][j]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Store(c + r * p.c_row + j * kLanes, sum[r][j]);
}

template <int PanelCount>
PARAX_TARGET inline void MultiplyPanels(const WinogradProduct& p, const float* b, float* c) {
  int64_t row = 0;
  for (; row + kMostRows <= p.rows; row += kMostRows)
    MultiplyTile<kMostRows, PanelCount>(p, p.a + row * p.a_row, b, c + row * p.c_row);
  for (; row + 4 <= p.rows; row += 4)
    MultiplyTile<4, PanelCount>(p, p.a + row * p.a_row, b, c + row * p.c_row);
  for (; row < p.rows; ++row)
    MultiplyTile<1, PanelCount>(p, p.a + row * p.a_row, b, c + row * p.c_row);
}

PARAX_TARGET void Multiply(const WinogradProduct& p) {
  int64_t panel = 0;
  for (; panel + kMostPanels <= p.panels; panel += kMostPanels)
    MultiplyPanels<kMostPanels>(p, p.b + panel * p.b_panel, p.c + panel * kWinogradPanel);
  for (; panel < p.panels; ++panel)
    MultiplyPanels<1>(p, p.b + panel * p.b_panel, p.c + panel * kWinogradPanel);
}

constexpr WinogradLoops kLoops = {GatherInput, GatherOutputGrad, ScatterOutput,
                                  PackWeights, UnpackWeightGrad, Multiply};
