stuck_reads.o: tests/server/stuck_reads.cc
