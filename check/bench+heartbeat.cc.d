heartbeat.o: bench/heartbeat.cc /work/ci3/bench/heartbeat.h
