tensor_text_test.o: src/server/http/tensor_text_test.cc \
  /work/ci3/src/server/http/tensor_text.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/http/json_writer.h /work/ci3/src/base/bytes.h
