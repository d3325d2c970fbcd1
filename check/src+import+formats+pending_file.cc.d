pending_file.o: src/import/formats/pending_file.cc \
  /work/ci3/src/import/formats/pending_file.h \
  /work/ci3/src/import/formats/file.h /work/ci3/src/base/macros.h
