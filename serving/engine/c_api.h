/* The engine for programs in any language: plain C over one loaded model.
 *
 * Every function that can fail returns 0 when it succeeds; gnmt_error() then says why it did not, for the calling thread.
 */

#ifndef GNMT_TF_SERVING_ENGINE_C_API_H_
#define GNMT_TF_SERVING_ENGINE_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int32_t vocab_size, num_encoder_layers, num_decoder_layers, num_units, attention_units, embedding_size;
  int32_t first_residual_layer, tanh_output;
  double clip_bound;
  float logit_bound;
} GnmtShape;

typedef struct {
  int32_t beam_width, n_best;
  float length_penalty_weight, coverage_penalty_weight, piece_margin, hypothesis_margin; /* negative: no pruning */
  int32_t early_stopping;
  float max_length_factor;
  int32_t max_length_constant, min_length, batch_size;
} GnmtOptions;

const char* gnmt_error(void);

/* Names of the kernels that this CPU can run, the fastest first, separated by spaces. */
const char* gnmt_kernels(void);

/* `weights` are, in this order: source embeddings and scales, target embeddings and scales; of each LSTM layer (encoder:
 * forward, backward, upper ones; decoder) values, row scales and biases; query, key, key bias and score kernels;
 * projection, its scales and its biases. `kernels` is one of those names, or null for the fastest. */
int gnmt_load(const GnmtShape* shape, const void* const* weights, int32_t num_weights, const char* kernels, void** model);
void gnmt_free(void* model);
/* Bytes of the int8 weights, and of all that the model holds. */
void gnmt_sizes(const void* model, int64_t* int8_bytes, int64_t* total_bytes);

/* Translates sentences of piece ids, one after the other in `ids`. `forced_lengths` is null or the length that each
 * sentence's hypotheses must have. For each of [num_sentences, n_best]: length (0 where
 * there is no hypothesis), score and log P; ids and log-probabilities of the pieces, [num_sentences, n_best, most]. */
int gnmt_translate(void* model, const int32_t* ids, const int32_t* lengths, const int32_t* forced_lengths,
                   int32_t num_sentences, const GnmtOptions* options, int32_t num_threads, int32_t most, int32_t* out_ids, int32_t* out_lengths,
                   float* out_scores, float* out_log_probs, float* out_piece_log_probs);

/* log P of given targets, piece by piece, one after the other in `out`; attention [target_length, source_length] of each,
 * likewise, if `out_attention` is not null. */
int gnmt_score(void* model, const int32_t* ids, const int32_t* lengths, const int32_t* target_ids,
               const int32_t* target_lengths, int32_t num_sentences, int32_t num_threads, float* out,
               float* out_attention);

/* For measuring, on one thread for about so many seconds: products of int8 per second in a matrix product of a packed
 * matrix of `num_units` by `size` with `num_rows` rows; the most that the variant's instructions can do in registers; and
 * bytes per second read from an array of so many bytes. */
double gnmt_products_per_second(const char* kernels, int32_t num_rows, int32_t size, int32_t num_units, double seconds);
double gnmt_peak_products_per_second(const char* kernels, double seconds);
double gnmt_bytes_per_second(int64_t bytes, double seconds);

#ifdef __cplusplus
}
#endif

#endif  /* GNMT_TF_SERVING_ENGINE_C_API_H_ */
