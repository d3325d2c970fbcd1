top_figures_test.o: cli/top_figures_test.cc /work/ci3/cli/top_figures.h \
  /work/ci3/cli/json_writer.h
