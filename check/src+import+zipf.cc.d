zipf.o: src/import/zipf.cc /work/ci3/src/import/zipf.h
