// The inner loops of the quantised engine, in several variants that give the same bits.
//
// A variant is the same code compiled for another instruction set, with its own int8 dot product. Which ones a CPU can
// run is found out at run time. What they compute is defined by gnmt_tf/quantization/ (NumPy), bit for bit: integers are
// exact, and floating point consists of single additions, products and divisions in a fixed order.
//
// Rows are hypotheses or source positions; no row's result depends on another row. Matrices are packed in panels of 64
// output units, [panel][size / 4][64][4]. Work is cut up by panels, so that several threads may share one call.

#ifndef GNMT_TF_SERVING_ENGINE_KERNELS_H_
#define GNMT_TF_SERVING_ENGINE_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace gnmt {

constexpr int kLanes = 16;
constexpr int kPanel = 64;
constexpr int kUnitsPerPanel = 16;  // An LSTM's panel has the four gates of 16 units.
constexpr int kPanelsPerChunk = 16;  // The softmax's sum is made in chunks of 1024 pieces.
constexpr int kMaxParts = 3;

constexpr int RoundUp(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// An int8 matrix by output units, packed.
struct PackedMatrix {
  int num_panels = 0;
  int groups = 0;  // size / 4, rounded up; what is beyond the size is zero.
  const int8_t* values = nullptr;
  // int32 [num_panels * 64], 128 times the sum of each unit's weights: variants whose dot product takes unsigned
  // activations add 128 to each, and this is what they then have too much.
  const int32_t* offsets = nullptr;
};

// Rows of int8 activations, written by the quantising kernels of the same variant.
struct QuantizedRows {
  int8_t* values = nullptr;  // [rows, stride]
  float* scales = nullptr;   // [rows]
  size_t stride = 0;         // A multiple of 4.
};

struct LstmLayer {
  int num_units = 0;
  int num_panels = 0;  // num_units / 16, rounded up.
  int num_parts = 0;   // Inputs that are quantised apart: input, perhaps context, own output.
  PackedMatrix parts[kMaxParts];
  const float* row_scales = nullptr;  // [num_panels * 64]: 16 of gate i, 16 of i', 16 of f, 16 of o, and so on.
  const float* biases = nullptr;      // likewise
  int one = 0;                        // What 1 is in the units of c.
  float activation_scale = 0.0f;      // 0 for a linear output, else what turns c into a gate's input.
};

struct Projection {
  int vocab_size = 0;
  PackedMatrix weights;
  const float* row_scales = nullptr;  // [num_panels * 64]
  const float* biases = nullptr;      // [num_panels * 64]
  float logit_bound = 0.0f;
};

struct Kernels {
  const char* name;
  bool (*is_supported)();
  bool unsigned_activations;

  // int16 [rows, size] with a stride, each worth `unit` -> int8 rows and scales; the rest of a row is filled with zeros.
  void (*quantize_fixed)(const int16_t* values, size_t stride, int size, float unit, int num_rows, QuantizedRows out);
  // The same for float32.
  void (*quantize_float)(const float* values, size_t stride, int size, int num_rows, QuantizedRows out);

  // What the first part of a layer's input gives, float [rows, num_panels * 64], for panels [begin, end).
  void (*lstm_input_sums)(const LstmLayer& layer, QuantizedRows input, int num_rows, float* sums, int begin, int end);
  // One step of a layer. `sums` is null or holds what the parts before `first_part` give; inputs[first_part] and so on
  // are read. c: int16 [rows, num_panels * 16], replaced; m: the same shape, written.
  void (*lstm_step)(const LstmLayer& layer, const QuantizedRows* inputs, int first_part, const float* sums,
                    int num_rows, int16_t* c, int16_t* m, int begin, int end);

  // float [rows, size] by [size, columns]: sums in the order of `size`, beginning with `start` (null for zeros).
  // `columns` is a multiple of 16; strides are those of rows.
  void (*project)(const float* inputs, size_t input_stride, int size, const float* kernel, size_t kernel_stride,
                  const float* start, int columns, int num_rows, float* outputs, size_t output_stride);
  // Eq. 4 for one row: query float [attention_units], keys [source_length, attention_units]; widths are multiples of 16
  // whose filling is zero. Gives probabilities [source_length].
  void (*attend)(const float* query, const float* keys, const float* score_kernel, int attention_units,
                 int source_length, float* probs);

  // Logits float [rows, num_panels * 64] of panels [begin, end), both multiples of 16 or the end, and the sum of exp
  // (logit - bound) of each chunk, [rows, chunks]. Logits beyond the vocabulary are -inf.
  void (*logits)(const Projection& projection, QuantizedRows inputs, int num_rows, float* logits, float* chunk_sums,
                 int begin, int end);
  // The largest of float [size], size a multiple of 16.
  float (*largest)(const float* values, int size);
  // Places whose value is at least `threshold`, in order; gives how many, of which the first `capacity` are written.
  int (*at_least)(const float* values, int size, float threshold, int32_t* places, int capacity);
  // The instructions of the dot product alone, in registers; gives how many int8 products they were. For measuring.
  int64_t (*only_products)(int64_t rounds, int32_t* sink);
  // exp, tanh and log of arrays, for tests.
  void (*exp_tanh_log)(const float* values, int size, float* exps, float* tanhs, float* logs);
};

const Kernels& PortableKernels();
const Kernels& Avx2Kernels();
const Kernels& Avx512VnniKernels();

// The fastest variant that this CPU can run.
const Kernels& BestKernels();
// By name, or null when there is none or this CPU cannot run it.
const Kernels* KernelsByName(const char* name);

// log as float_math.log computes it.
float ExactLog(float value);

// Packs int8 [num_units, size], rows `stride` apart, into `values` (num_panels * groups * 256 bytes) and `offsets`.
// `unit_of[num_panels * 64]` says which row each place of the panels takes; -1 for none.
void Pack(const int8_t* weights, size_t stride, int size, const int32_t* unit_of, int num_panels, int8_t* values,
          int32_t* offsets);

}  // namespace gnmt

#endif  // GNMT_TF_SERVING_ENGINE_KERNELS_H_
