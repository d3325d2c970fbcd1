file.o: src/import/formats/file.cc /work/ci3/src/import/formats/file.h
