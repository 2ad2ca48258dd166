// The code of all variants. Included by each of kernels_*.cc, after its instruction set was chosen and its dot product
// defined, inside a namespace of its own. Vectors of 16 lanes are GCC's: a variant with narrower registers takes several
// for each, which changes no bit.
//
// Expects, in the same namespace:
//   constexpr int kMaxRows;      rows that one call of Dot may take
//   constexpr int kActivationOffset;   what is added to each activation (128 or 0)
//   int64_t OnlyProducts(int64_t rounds, int32_t* sink);   see Kernels
//   template <int rows> void Dot(const int8_t* panel, int groups, const int8_t* const* inputs, int32_t (*sums)[64]);

typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef int16_t S16 __attribute__((vector_size(32)));

constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to the nearest even integer.
constexpr float kExpLowest = -87.0f;
constexpr float kTanhLargest = 9.0f;
constexpr float kLog2E = 1.44269502f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-06f;
constexpr float kExpTerms[] = {static_cast<float>(1.0 / 5040.0), static_cast<float>(1.0 / 720.0),
                               static_cast<float>(1.0 / 120.0),  static_cast<float>(1.0 / 24.0),
                               static_cast<float>(1.0 / 6.0),    static_cast<float>(1.0 / 2.0)};

template <typename Vector, typename Element>
inline Vector Load(const Element* values) {
  Vector vector;
  __builtin_memcpy(&vector, values, sizeof(vector));
  return vector;
}

template <typename Vector, typename Element>
inline void Store(Vector vector, Element* values) {
  __builtin_memcpy(values, &vector, sizeof(vector));
}

inline F16 Splat(float value) { return F16{} + value; }
inline I16 SplatInt(int32_t value) { return I16{} + value; }
inline F16 ToFloat(I16 values) { return __builtin_convertvector(values, F16); }
inline I16 ToInt(F16 values) { return __builtin_convertvector(values, I16); }
inline F16 Min(F16 a, F16 b) { return a < b ? a : b; }
inline F16 Max(F16 a, F16 b) { return a > b ? a : b; }
inline F16 Bits(I16 values) { return reinterpret_cast<F16>(values); }
inline I16 BitsOf(F16 values) { return reinterpret_cast<I16>(values); }
inline F16 Abs(F16 values) { return Bits(BitsOf(values) & SplatInt(0x7fffffff)); }
// Correct for magnitudes below 2^22.
inline F16 Round(F16 values) { return (values + Splat(kRounder)) - Splat(kRounder); }

inline float SumOfLanes(F16 values) {
  float lanes[kLanes];
  Store(values, lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = lanes[k] + lanes[k + width];
  }
  return lanes[0];
}

inline float LargestLane(F16 values) {
  float lanes[kLanes];
  Store(values, lanes);
  float largest = lanes[0];
  for (int k = 1; k < kLanes; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
  return largest;
}

// float_math.exp
inline F16 Exp(F16 x) {
  x = Max(x, Splat(kExpLowest));
  const F16 number = Round(x * kLog2E);
  const F16 rest = (x - number * kLn2High) - number * kLn2Low;
  F16 value = Splat(kExpTerms[0]);
  for (int term = 1; term < 6; ++term) value = value * rest + kExpTerms[term];
  value = value * rest + 1.0f;
  value = value * rest + 1.0f;
  return value * Bits((ToInt(number) + 127) << 23);
}

// float_math.tanh
inline F16 Tanh(F16 x) {
  const F16 e = Exp(Min(Abs(x), Splat(kTanhLargest)) * -2.0f);
  const F16 size = (1.0f - e) / (1.0f + e);
  return Bits(BitsOf(size) | (BitsOf(x) & SplatInt(static_cast<int32_t>(0x80000000u))));
}

// fixed_point.multiply
inline I16 Multiply(I16 a, I16 b) { return (a * b + (1 << 14)) >> 15; }

// fixed_point.tanh16: the table holds each segment's start in the high and its step in the low half.
inline I16 Tanh16(I16 values) {
  const I16 shifted = values + (1 << 15);
  int32_t places[kLanes], found[kLanes];
  Store(shifted >> kSegmentBits, places);
  const int32_t* table = TanhTable();
  for (int k = 0; k < kLanes; ++k) found[k] = table[places[k]];
  const I16 entry = Load<I16>(found);
  const I16 step = entry & SplatInt(0xffff), within = shifted & SplatInt((1 << kSegmentBits) - 1);
  return (entry >> 16) + ((step * within + (1 << (kSegmentBits - 1))) >> kSegmentBits);
}

// fixed_point.sigmoid16
inline I16 Sigmoid16(I16 half_values) { return (Tanh16(half_values) + (1 << 15)) >> 1; }

// fixed_point.gate_inputs
inline I16 GateInputs(F16 sums) { return ToInt(Round(Min(Max(sums, Splat(-32767.0f)), Splat(32767.0f)))); }

inline I16 Clamp16(I16 values) {
  values = values > SplatInt(32767) ? SplatInt(32767) : values;
  return values < SplatInt(-32767) ? SplatInt(-32767) : values;
}

template <int rows>
inline void DotRows(const PackedMatrix& matrix, int panel, const QuantizedRows& inputs, int first_row,
                    int32_t (*sums)[kPanel]) {
  const int8_t* at[rows];
  for (int row = 0; row < rows; ++row) at[row] = inputs.values + (first_row + row) * inputs.stride;
  Dot<rows>(matrix.values + static_cast<size_t>(panel) * matrix.groups * kPanel * 4, matrix.groups, at, sums);
}

// The exact sums of one panel and up to kMaxRows rows.
inline void PanelSums(const PackedMatrix& matrix, int panel, const QuantizedRows& inputs, int first_row, int rows,
                      int32_t (*sums)[kPanel]) {
  switch (rows) {
    case 1: DotRows<1>(matrix, panel, inputs, first_row, sums); break;
    case 2: DotRows<2>(matrix, panel, inputs, first_row, sums); break;
    case 3: DotRows<3>(matrix, panel, inputs, first_row, sums); break;
    case 4: DotRows<4>(matrix, panel, inputs, first_row, sums); break;
    case 5: if constexpr (kMaxRows >= 5) DotRows<5>(matrix, panel, inputs, first_row, sums); break;
    default: if constexpr (kMaxRows >= 6) DotRows<6>(matrix, panel, inputs, first_row, sums); break;
  }
}

inline I16 ExactSums(const PackedMatrix& matrix, int panel, const int32_t* sums, int vector) {
  I16 values = Load<I16>(sums + vector * kLanes);
  if (kActivationOffset) values -= Load<I16>(matrix.offsets + panel * kPanel + vector * kLanes);
  return values;
}

inline void QuantizeRow(const float* values, int size, float factor, int8_t* out, size_t stride) {
  int k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    F16 rounded = Round(Load<F16>(values + k) * factor);
    rounded = Min(Max(rounded, Splat(-127.0f)), Splat(127.0f));
    const I16 integers = ToInt(rounded) + kActivationOffset;
    int32_t lanes[kLanes];
    Store(integers, lanes);
    for (int lane = 0; lane < kLanes; ++lane) out[k + lane] = static_cast<int8_t>(lanes[lane]);
  }
  for (; k < size; ++k) {
    float rounded = (values[k] * factor + kRounder) - kRounder;
    rounded = rounded < -127.0f ? -127.0f : rounded > 127.0f ? 127.0f : rounded;
    out[k] = static_cast<int8_t>(static_cast<int32_t>(rounded) + kActivationOffset);
  }
  for (; k < static_cast<int>(stride); ++k) out[k] = static_cast<int8_t>(kActivationOffset);
}

inline float LargestMagnitude(const float* values, int size) {
  F16 lanes = F16{};
  int k = 0;
  for (; k + kLanes <= size; k += kLanes) lanes = Max(lanes, Abs(Load<F16>(values + k)));
  float largest = LargestLane(lanes);
  for (; k < size; ++k) {
    const float magnitude = values[k] < 0.0f ? -values[k] : values[k];
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// fixed_point.quantize_float
void QuantizeFloat(const float* values, size_t stride, int size, int num_rows, QuantizedRows out) {
  for (int row = 0; row < num_rows; ++row) {
    const float* from = values + row * stride;
    const float largest = LargestMagnitude(from, size);
    const float factor = largest > 0.0f ? 127.0f / largest : 0.0f;
    QuantizeRow(from, size, factor, out.values + row * out.stride, out.stride);
    out.scales[row] = largest * (1.0f / 127.0f);
  }
}

// fixed_point.quantize_fixed
void QuantizeFixed(const int16_t* values, size_t stride, int size, float unit, int num_rows, QuantizedRows out) {
  constexpr int kBlock = 1024;
  float block[kBlock];
  const float unit_by_127 = unit / 127.0f;
  for (int row = 0; row < num_rows; ++row) {
    const int16_t* from = values + row * stride;
    int most = 0;
    for (int k = 0; k < size; ++k) {
      const int magnitude = from[k] < 0 ? -from[k] : from[k];
      most = magnitude > most ? magnitude : most;
    }
    const float largest = static_cast<float>(most);
    const float factor = largest > 0.0f ? 127.0f / largest : 0.0f;
    int8_t* to = out.values + row * out.stride;
    for (int start = 0; start < size; start += kBlock) {
      const int count = size - start < kBlock ? size - start : kBlock;
      for (int k = 0; k < count; ++k) block[k] = static_cast<float>(from[start + k]);
      const bool is_last = start + count == size;
      QuantizeRow(block, count, factor, to + start, is_last ? out.stride - start : count);
    }
    out.scales[row] = largest * unit_by_127;
  }
}

void LstmInputSums(const LstmLayer& layer, QuantizedRows input, int num_rows, float* sums, int begin, int end) {
  int32_t exact[kMaxRows][kPanel];
  const size_t stride = static_cast<size_t>(layer.num_panels) * kPanel;
  for (int panel = begin; panel < end; ++panel) {
    for (int first = 0; first < num_rows; first += kMaxRows) {
      const int rows = num_rows - first < kMaxRows ? num_rows - first : kMaxRows;
      PanelSums(layer.parts[0], panel, input, first, rows, exact);
      for (int row = 0; row < rows; ++row) {
        float* to = sums + (first + row) * stride + panel * kPanel;
        for (int gate = 0; gate < 4; ++gate) {
          const F16 product = ToFloat(ExactSums(layer.parts[0], panel, exact[row], gate)) * input.scales[first + row];
          Store(F16{} + product, to + gate * kLanes);
        }
      }
    }
  }
}

// The gates of 16 units from their sums: eq. 11 with eq. 10 in integers.
inline void Cell(const LstmLayer& layer, int panel, const F16* sums, int16_t* c_at, int16_t* m_at) {
  I16 inputs[4];
  for (int gate = 0; gate < 4; ++gate) {
    const int place = panel * kPanel + gate * kLanes;
    inputs[gate] = GateInputs(sums[gate] * Load<F16>(layer.row_scales + place) + Load<F16>(layer.biases + place));
  }
  I16 c = __builtin_convertvector(Load<S16>(c_at), I16);
  const I16 added = Multiply(Multiply(Sigmoid16(inputs[0]), Tanh16(inputs[1])), SplatInt(layer.one));
  c = Clamp16(Multiply(c, Sigmoid16(inputs[2])) + added);
  I16 activated = c;
  if (layer.activation_scale != 0.0f) {
    activated = Multiply(Tanh16(GateInputs(ToFloat(c) * layer.activation_scale)), SplatInt(layer.one));
  }
  Store(__builtin_convertvector(c, S16), c_at);
  Store(__builtin_convertvector(Multiply(activated, Sigmoid16(inputs[3])), S16), m_at);
}

void LstmStep(const LstmLayer& layer, const QuantizedRows* inputs, int first_part, const float* sums, int num_rows,
              int16_t* c, int16_t* m, int begin, int end) {
  int32_t exact[kMaxRows][kPanel];
  F16 totals[kMaxRows][4];
  const size_t stride = static_cast<size_t>(layer.num_panels) * kUnitsPerPanel;
  for (int panel = begin; panel < end; ++panel) {
    for (int first = 0; first < num_rows; first += kMaxRows) {
      const int rows = num_rows - first < kMaxRows ? num_rows - first : kMaxRows;
      for (int row = 0; row < rows; ++row) {
        for (int gate = 0; gate < 4; ++gate) {
          totals[row][gate] = F16{};
          if (sums != nullptr) {
            const size_t place = static_cast<size_t>(first + row) * layer.num_panels * kPanel + panel * kPanel;
            totals[row][gate] = Load<F16>(sums + place + gate * kLanes);
          }
        }
      }
      for (int part = first_part; part < layer.num_parts; ++part) {
        PanelSums(layer.parts[part], panel, inputs[part], first, rows, exact);
        for (int row = 0; row < rows; ++row) {
          const float scale = inputs[part].scales[first + row];
          for (int gate = 0; gate < 4; ++gate) {
            totals[row][gate] += ToFloat(ExactSums(layer.parts[part], panel, exact[row], gate)) * scale;
          }
        }
      }
      for (int row = 0; row < rows; ++row) {
        const size_t place = (first + row) * stride + panel * kUnitsPerPanel;
        Cell(layer, panel, totals[row], c + place, m + place);
      }
    }
  }
}

template <int rows, int vectors>
inline void ProjectBlock(const float* inputs, size_t input_stride, int size, const float* kernel, size_t kernel_stride,
                         const float* start, float* outputs, size_t output_stride) {
  F16 sums[rows][vectors];
  for (int row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) sums[row][v] = start ? Load<F16>(start + v * kLanes) : F16{};
  }
  for (int k = 0; k < size; ++k) {
    F16 weights[vectors];
    for (int v = 0; v < vectors; ++v) weights[v] = Load<F16>(kernel + k * kernel_stride + v * kLanes);
    for (int row = 0; row < rows; ++row) {
      const float input = inputs[row * input_stride + k];
      for (int v = 0; v < vectors; ++v) sums[row][v] += weights[v] * input;
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) Store(sums[row][v], outputs + row * output_stride + v * kLanes);
  }
}

template <int vectors>
inline void ProjectColumns(const float* inputs, size_t input_stride, int size, const float* kernel,
                           size_t kernel_stride, const float* start, int num_rows, float* outputs,
                           size_t output_stride) {
  int row = 0;
  for (; row + 4 <= num_rows; row += 4) {
    ProjectBlock<4, vectors>(inputs + row * input_stride, input_stride, size, kernel, kernel_stride, start,
                             outputs + row * output_stride, output_stride);
  }
  for (; row < num_rows; ++row) {
    ProjectBlock<1, vectors>(inputs + row * input_stride, input_stride, size, kernel, kernel_stride, start,
                             outputs + row * output_stride, output_stride);
  }
}

// float_math.project
void Project(const float* inputs, size_t input_stride, int size, const float* kernel, size_t kernel_stride,
             const float* start, int columns, int num_rows, float* outputs, size_t output_stride) {
  constexpr int kVectors = 4;
  int column = 0;
  for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes) {
    ProjectColumns<kVectors>(inputs, input_stride, size, kernel + column, kernel_stride,
                             start ? start + column : nullptr, num_rows, outputs + column, output_stride);
  }
  for (; column < columns; column += kLanes) {
    ProjectColumns<1>(inputs, input_stride, size, kernel + column, kernel_stride,
                      start ? start + column : nullptr, num_rows, outputs + column, output_stride);
  }
}

// float_math.softmax, in place
inline void Softmax(float* values, int size) {
  float largest = values[0];
  for (int k = 1; k < size; ++k) largest = values[k] > largest ? values[k] : largest;
  F16 lanes = F16{};
  for (int start = 0; start < size; start += kLanes) {
    const int count = size - start < kLanes ? size - start : kLanes;
    float block[kLanes];
    for (int k = 0; k < kLanes; ++k) block[k] = k < count ? values[start + k] - largest : 0.0f;
    Store(Exp(Load<F16>(block)), block);
    for (int k = 0; k < count; ++k) values[start + k] = block[k];
    for (int k = count; k < kLanes; ++k) block[k] = 0.0f;
    lanes += Load<F16>(block);
  }
  const float sum = SumOfLanes(lanes);
  for (int k = 0; k < size; ++k) values[k] = values[k] / sum;
}

void Attend(const float* query, const float* keys, const float* score_kernel, int attention_units, int source_length,
            float* probs) {
  for (int position = 0; position < source_length; ++position) {
    const float* key = keys + static_cast<size_t>(position) * attention_units;
    F16 lanes = F16{};
    for (int k = 0; k < attention_units; k += kLanes) {
      lanes += Tanh(Load<F16>(key + k) + Load<F16>(query + k)) * Load<F16>(score_kernel + k);
    }
    probs[position] = SumOfLanes(lanes);
  }
  Softmax(probs, source_length);
}

void Logits(const Projection& projection, QuantizedRows inputs, int num_rows, float* logits, float* chunk_sums,
            int begin, int end) {
  int32_t exact[kMaxRows][kPanel];
  const F16 bound = Splat(projection.logit_bound);
  const size_t stride = static_cast<size_t>(projection.weights.num_panels) * kPanel;
  const int num_chunks = (projection.weights.num_panels + kPanelsPerChunk - 1) / kPanelsPerChunk;
  constexpr int kRowsAtATime = 128;
  F16 lanes[kRowsAtATime];
  for (int start = 0; start < num_rows; start += kRowsAtATime) {
    const int stop = num_rows - start < kRowsAtATime ? num_rows : start + kRowsAtATime;
    for (int chunk = begin / kPanelsPerChunk; chunk * kPanelsPerChunk < end; ++chunk) {
      const int last = (chunk + 1) * kPanelsPerChunk < end ? (chunk + 1) * kPanelsPerChunk : end;
      for (int row = start; row < stop; ++row) lanes[row - start] = F16{};
      for (int panel = chunk * kPanelsPerChunk; panel < last; ++panel) {
        for (int first = start; first < stop; first += kMaxRows) {
          const int rows = stop - first < kMaxRows ? stop - first : kMaxRows;
          PanelSums(projection.weights, panel, inputs, first, rows, exact);
          for (int row = 0; row < rows; ++row) {
            const float scale = inputs.scales[first + row];
            for (int v = 0; v < 4; ++v) {
              const int place = panel * kPanel + v * kLanes;
              const F16 sums = ToFloat(ExactSums(projection.weights, panel, exact[row], v)) * scale;
              F16 values = sums * Load<F16>(projection.row_scales + place) + Load<F16>(projection.biases + place);
              values = Min(Max(values, -bound), bound);
              F16 exps = Exp(values - bound);
              const int real = projection.vocab_size - place;
              if (real < kLanes) {
                float value_lanes[kLanes], exp_lanes[kLanes];
                Store(values, value_lanes);
                Store(exps, exp_lanes);
                for (int k = real < 0 ? 0 : real; k < kLanes; ++k) {
                  value_lanes[k] = -__builtin_inff();
                  exp_lanes[k] = 0.0f;
                }
                values = Load<F16>(value_lanes);
                exps = Load<F16>(exp_lanes);
              }
              lanes[first - start + row] += exps;
              Store(values, logits + (first + row) * stride + place);
            }
          }
        }
      }
      for (int row = start; row < stop; ++row) {
        chunk_sums[static_cast<size_t>(row) * num_chunks + chunk] = SumOfLanes(lanes[row - start]);
      }
    }
  }
}

float Largest(const float* values, int size) {
  F16 lanes = Load<F16>(values);
  for (int k = kLanes; k < size; k += kLanes) lanes = Max(lanes, Load<F16>(values + k));
  return LargestLane(lanes);
}

int AtLeast(const float* values, int size, float threshold, int32_t* places, int capacity) {
  int found = 0;
  const F16 least = Splat(threshold);
  for (int start = 0; start < size; start += kLanes) {
    const I16 is_large = Load<F16>(values + start) >= least;
    int32_t lanes[kLanes];
    Store(is_large, lanes);
    int32_t any = 0;
    for (int k = 0; k < kLanes; ++k) any |= lanes[k];
    if (!any) continue;
    for (int k = 0; k < kLanes; ++k) {
      if (!lanes[k]) continue;
      if (found < capacity) places[found] = start + k;
      ++found;
    }
  }
  return found;
}

void ExpTanhLog(const float* values, int size, float* exps, float* tanhs, float* logs) {
  for (int k = 0; k < size; ++k) {
    float lanes[kLanes] = {values[k]};
    Store(Exp(Load<F16>(lanes)), lanes);
    exps[k] = lanes[0];
    lanes[0] = values[k];
    Store(Tanh(Load<F16>(lanes)), lanes);
    tanhs[k] = lanes[0];
    logs[k] = values[k] > 0.0f ? ExactLog(values[k]) : 0.0f;
  }
}

constexpr bool kUnsigned = kActivationOffset != 0;
#define GNMT_KERNELS(name, is_supported)                                                                         \
  {name,     is_supported, kUnsigned, QuantizeFixed, QuantizeFloat, LstmInputSums, LstmStep, Project, Attend, \
   Logits, Largest,      AtLeast,   OnlyProducts,  ExpTanhLog}
