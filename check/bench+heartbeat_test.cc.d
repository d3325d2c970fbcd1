heartbeat_test.o: bench/heartbeat_test.cc /work/ci3/bench/heartbeat.h
