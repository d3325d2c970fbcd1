top_figures.o: cli/top_figures.cc /work/ci3/cli/top_figures.h \
  /work/ci3/cli/json_writer.h
