// Real Kafka brokers for tests, and what an operator does with their topics.
//
//   TestKafkaBrokers& kafka = TestKafkaBrokers::Shared();   // one broker for the whole program
//   kafka.MakeTopic("hps_et.m.t", 2);
//
// The brokers are processes that tools/kafka/brokers.py starts and stops; they end with the test.
// A failure here ends the test program: without brokers nothing can be tested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "testing/test_server_program.h"
#include "update/kafka/kafka_client.h"

namespace hps {

class TestKafkaBrokers {
 public:
  // One broker, started by the first call; ends with the program.
  static TestKafkaBrokers& Shared();

  explicit TestKafkaBrokers(size_t count);
  const std::string& addresses() const { return program_.ready(); }

  void Kill(size_t broker) { Command("kill", broker); }    // SIGKILL
  void Stop(size_t broker) { Command("stop", broker); }    // SIGTERM; returns when it has ended
  void Start(size_t broker) { Command("start", broker); }  // returns when it serves

  using Settings = std::map<std::string, std::string>;
  // Each returns when every broker that lives knows it.
  void MakeTopic(const std::string& topic, uint32_t partition_count, const Settings& settings = {});
  // With one replica of each partition: partition i is on broker i modulo their number.
  void MakeUnreplicatedTopic(const std::string& topic, uint32_t partition_count);
  void DropTopic(const std::string& topic);
  void Grow(const std::string& topic, uint32_t partition_count);
  // Deletes the records before offset `low`.
  void DeleteRecords(const std::string& topic, uint32_t partition, uint64_t low);
  // By partition: the offset after the last record.
  std::vector<uint64_t> Ends(const std::string& topic, uint32_t partition_count);

 private:
  void Command(const char* command, size_t broker);
  void MakeAdmin();
  template <typename Send>
  rd_kafka_event_t* Ask(rd_kafka_admin_op_t operation, const Send& send);
  void Create(rd_kafka_NewTopic_t* made);
  void WaitForPartitions(const std::string& topic, uint32_t partition_count);

  const size_t count_;
  TestServerProgram program_;
  std::unique_ptr<KafkaClient> admin_;
};

}  // namespace hps
