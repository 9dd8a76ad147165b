/* Asks an exported model about a pair of texts, with TensorFlow's C library and nothing else.
 *
 *   ask SAVED_MODEL_DIR INPUT_A INPUT_B OUTPUT TEXT_A TEXT_B
 *
 * SAVED_MODEL_DIR is a version of an export. INPUT_A, INPUT_B and OUTPUT are names of tensors, such as
 * "text_text_a:0"; the signature "text" in saved_model.pb tells them, which to read in C takes a protobuf library. The
 * texts are UTF-8. Prints the output, a float32 tensor, one number a line. Exit code 1 and a message on stderr if
 * anything fails.
 */

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("ask: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static void check(const TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) fail("%s", TF_Message(status));
}

/* Finds the tensor "operation:index". */
static TF_Output find_tensor(TF_Graph *graph, const char *name) {
  const char *colon = strrchr(name, ':');
  char *end = NULL;
  long index = colon ? strtol(colon + 1, &end, 10) : -1;
  if (index < 0 || end == colon + 1 || *end) fail("%s is not a tensor's name, operation:index", name);

  char *operation_name = strndup(name, colon - name);
  TF_Operation *operation = TF_GraphOperationByName(graph, operation_name);
  free(operation_name);
  if (!operation || index >= TF_OperationNumOutputs(operation)) fail("the model has no tensor %s", name);
  return (TF_Output){operation, index};
}

/* Makes a string tensor of shape [1], a batch of one text. */
static TF_Tensor *make_batch(const char *text) {
  const int64_t shape[] = {1};
  TF_Tensor *tensor = TF_AllocateTensor(TF_STRING, shape, 1, sizeof(TF_TString));
  TF_TString *element = TF_TensorData(tensor);
  TF_StringInit(element);
  TF_StringCopy(element, text, strlen(text));
  return tensor;
}

static void delete_batch(TF_Tensor *tensor) {
  TF_StringDealloc(TF_TensorData(tensor)); /* a longer text has memory of its own, which TF_DeleteTensor would leak */
  TF_DeleteTensor(tensor);
}

int main(int num_arguments, char **arguments) {
  if (num_arguments != 7) fail("usage: %s SAVED_MODEL_DIR INPUT_A INPUT_B OUTPUT TEXT_A TEXT_B", arguments[0]);
  const char *const tags[] = {"serve"};

  TF_Status *status = TF_NewStatus();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Graph *graph = TF_NewGraph();
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, arguments[1], tags, 1, graph, NULL, status);
  check(status);
  TF_DeleteSessionOptions(options);

  const TF_Output inputs[] = {find_tensor(graph, arguments[2]), find_tensor(graph, arguments[3])};
  const TF_Output output = find_tensor(graph, arguments[4]);
  if (TF_OperationOutputType(output) != TF_FLOAT) fail("%s is not float32", arguments[4]);

  TF_Tensor *batches[] = {make_batch(arguments[5]), make_batch(arguments[6])};
  TF_Tensor *result = NULL;
  TF_SessionRun(session, NULL, inputs, batches, 2, &output, &result, 1, NULL, 0, NULL, status);
  check(status);

  const float *numbers = TF_TensorData(result);
  for (int64_t i = 0; i < TF_TensorElementCount(result); i++) printf("%.9g\n", numbers[i]);

  TF_DeleteTensor(result);
  for (int i = 0; i < 2; i++) delete_batch(batches[i]);
  TF_DeleteSession(session, status);
  check(status);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
