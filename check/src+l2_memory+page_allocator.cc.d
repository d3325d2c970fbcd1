page_allocator.o: src/l2_memory/page_allocator.cc \
  /work/ci3/src/l2_memory/page_allocator.h /work/ci3/src/base/bytes.h
