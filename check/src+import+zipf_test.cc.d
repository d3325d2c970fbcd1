zipf_test.o: src/import/zipf_test.cc /work/ci3/src/import/zipf.h
