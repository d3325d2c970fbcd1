top_text.o: cli/top_text.cc /work/ci3/cli/output.h \
  /work/ci3/cli/json_writer.h /work/ci3/cli/top_figures.h
