// What people and tools ask: descriptions, pages of a listing, pins.
#include <algorithm>

#include "store/master_core.h"

namespace mooncake::store {
namespace {

constexpr uint32_t kScanned = 2048;  // records a page at most
constexpr uint64_t kMaxPageBytes = 8ull << 20;

// On the wire, at most.
uint64_t BytesOf(const ObjectInfo& info) {
  return 64 + info.key.size() + info.group.size() + 9 * (info.copies.size() + info.nodes.size());
}

}  // namespace

uint32_t MasterCore::NameNode(uint32_t slot, Objects& answer) {
  NodeRecord& node = inventory_.nodes()[slot];
  if (node.answer != last_answer_) {
    node.answer = last_answer_;
    node.answer_index = static_cast<uint32_t>(answer.nodes.size());
    answer.nodes.push_back(node.name);
  }
  return node.answer_index;
}

ObjectInfo MasterCore::InfoOf(uint32_t index, Objects& answer) {
  const Object& object = inventory_.objects()[index];
  ObjectInfo info;
  info.key = object.key();
  info.is_there = inventory_.IsReadable(object);
  info.size_bytes = object.size_bytes;
  info.part_bytes = object.part_bytes();
  info.generation = object.generation;
  info.pin = object.pin;
  info.leases = object.holds;
  info.depth = object.depth;
  if (object.group != kNoIndex) info.group = inventory_.groups()[object.group].name;
  for (size_t at = 0; at < object.copy_count; ++at) {
    const CopyExtent& first = object.copy(at)[0];
    if (first.is_retired || first.is_void()) continue;
    info.copies.push_back(NameNode(first.node, answer));
    for (const CopyExtent& extent : object.copy(at)) {
      if (!extent.is_void()) info.nodes.push_back(NameNode(extent.node, answer));
    }
  }
  std::ranges::sort(info.nodes);
  info.nodes.erase(std::ranges::unique(info.nodes).begin(), info.nodes.end());
  return info;
}

Result<Objects> MasterCore::Step(const Describe& event) {
  Objects answer;
  ++last_answer_;
  Near(event.keys);
  uint64_t bytes = 0;
  for (size_t at = 0; at < event.keys.size(); ++at) {
    const uint32_t index =
        inventory_.Find(event.keys[at], static_cast<uint32_t>(hashes_[at] >> 32));
    if (index != kNoIndex && inventory_.objects()[index].state == ObjectState::kCommitted) {
      answer.objects.push_back(InfoOf(index, answer));
    } else {
      answer.objects.emplace_back().key = event.keys[at];
    }
    bytes += BytesOf(answer.objects.back());
    if (bytes > kMaxAnswerBytes) return Status(Code::kInvalidArgument, kAnswerTooLong);
  }
  return answer;
}

// The cursor is the first record that was not looked at; an object keeps its record.
Objects MasterCore::Step(const List& event) {
  Objects answer;
  ++last_answer_;
  const ObjectTable& objects = inventory_.objects();
  const uint64_t limit = std::clamp<uint64_t>(event.limit, 1, 1024);
  const uint64_t last = std::min<uint64_t>(event.cursor + kScanned, objects.record_count());
  uint64_t at = event.cursor, bytes = 0;
  for (; at < last && answer.objects.size() < limit && bytes < kMaxPageBytes; ++at) {
    const auto index = static_cast<uint32_t>(at);
    const Object& object = objects[index];
    if (object.state != ObjectState::kCommitted || inventory_.IsDying(object)) continue;
    if (!object.key().starts_with(event.prefix)) continue;
    answer.objects.push_back(InfoOf(index, answer));
    bytes += BytesOf(answer.objects.back());
  }
  answer.cursor = at < objects.record_count() ? at : 0;
  return answer;
}

std::vector<bool> MasterCore::Step(const SetPin& event, double now_s) {
  Advance(now_s);
  std::vector<bool> set(event.keys.size());
  if (event.pin > Pin::kHard) return set;
  Near(event.keys);
  for (size_t at = 0; at < event.keys.size(); ++at) {
    const uint32_t index =
        inventory_.Find(event.keys[at], static_cast<uint32_t>(hashes_[at] >> 32));
    if (index == kNoIndex) continue;
    if (inventory_.objects()[index].state != ObjectState::kCommitted) continue;
    inventory_.SetPin(index, event.pin);
    if (event.pin == Pin::kSoft) PinFor(index, event.soft_pin_s);
    set[at] = true;
  }
  return set;
}

}  // namespace mooncake::store
