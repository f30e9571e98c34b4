#include "store/read_round.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace mooncake::store {

size_t ReadRound::Add(const ReadSource& source, uint64_t offset, std::span<const Range> memory) {
  Job job = Next();
  job.source = source;
  jobs_.push_back(std::move(job));
  const bool is_verified = !source.checksums.empty();
  uint64_t end = offset;
  ForEachCut(*source.shape, memory, offset,
             [&](const Chunk& chunk, uint64_t address, uint64_t at, uint64_t length) {
               const bool is_new = at == offset || at == chunk.begin;
               if (is_new) parts_.push_back({chunk, at, at, pieces_.size(), {}, nullptr});
               parts_.back().end = end = at + length;
               pieces_.push_back({AddTo(source, address, at, length), length});
             });
  for (size_t at = jobs_.back().first_part; is_verified && at < parts_.size(); ++at) {
    Part& part = parts_[at];
    if (part.begin > part.chunk.begin || part.end < part.chunk.end) AddBounce(source, part);
  }
  AddHeads(source, offset, end);
  return jobs_.size() - 1;
}

Haul::Slot ReadRound::AddTo(const ReadSource& source, uint64_t address, uint64_t offset,
                            uint64_t length) {
  const Placement& extent = source.extents[source.shape->StripeOf(offset)];
  return haul_.Add(source.nodes[extent.node], address,
                   extent.offset + source.shape->InExtent(offset), length);
}

void ReadRound::AddBounce(const ReadSource& source, Part& part) {
  const uint64_t length = part.chunk.end - part.chunk.begin;
  uint8_t* const bounced = haul_.arena().Take(length);
  part.bounced = bounced;
  part.bounce = AddTo(source, reinterpret_cast<uint64_t>(bounced), part.chunk.begin, length);
}

void ReadRound::AddHeads(const ReadSource& source, uint64_t begin, uint64_t end) {
  const uint64_t last = end > begin ? source.shape->StripeOf(end - 1) : 0;
  for (uint64_t stripe = end > begin ? source.shape->StripeOf(begin) : 0; stripe <= last;
       ++stripe) {
    const Placement& extent = source.extents[stripe];
    uint8_t* const bytes = haul_.arena().Take(kHeaderBytes);
    const auto slot = haul_.AddHeader(source.nodes[extent.node], reinterpret_cast<uint64_t>(bytes),
                                      extent.offset);
    heads_.push_back({slot, bytes, stripe});
  }
}

ReadRound::Outcome ReadRound::OutcomeOf(size_t number) const {
  const Job& job = jobs_[number];
  const Job next = number + 1 < jobs_.size() ? jobs_[number + 1] : Next();
  Outcome outcome{.status = StatusOf(job, next), .peer_id = peer_id_};
  if (!outcome.status.ok()) return outcome;
  for (size_t at = job.first_head; at < next.first_head; ++at) {
    HeaderBytes bytes;
    std::memcpy(bytes.data(), heads_[at].bytes, bytes.size());
    ObjectHeader header = job.source.header;
    header.stripe = heads_[at].stripe;
    if (!IsHeader(bytes, header)) outcome.wrong = haul_.NodeOf(heads_[at].slot);
  }
  for (size_t at = job.first_part; at < next.first_part; ++at) {
    const bool is_last = at + 1 == next.first_part;
    const size_t end_piece = is_last ? next.first_piece : parts_[at + 1].first_piece;
    const bool is_right = job.source.checksums.empty() || IsRight(job, parts_[at], end_piece);
    if (!is_right) outcome.wrong = haul_.NodeOf(pieces_[parts_[at].first_piece].slot);
  }
  outcome.is_right = outcome.wrong == 0;
  return outcome;
}

// Of the first batch that failed.
Status ReadRound::StatusOf(const Job& job, const Job& next) const {
  for (size_t at = job.first_piece; at < next.first_piece; ++at) {
    MC_RETURN_IF_ERROR(haul_.StatusOf(pieces_[at].slot));
  }
  for (size_t at = job.first_head; at < next.first_head; ++at) {
    MC_RETURN_IF_ERROR(haul_.StatusOf(heads_[at].slot));
  }
  return Status::Ok();
}

bool ReadRound::IsRight(const Job& job, const Part& part, size_t end_piece) const {
  uint32_t checksum = haul_.ChecksumOf(pieces_[part.first_piece].slot);
  for (size_t at = part.first_piece + 1; at < end_piece; ++at) {
    checksum = Crc32cCombine(checksum, haul_.ChecksumOf(pieces_[at].slot), pieces_[at].length);
  }
  const uint32_t committed = job.source.checksums[part.chunk.index];
  if (part.bounced == nullptr) return checksum == committed;
  const uint8_t* const begin = part.bounced + (part.begin - part.chunk.begin);
  return haul_.ChecksumOf(part.bounce) == committed &&
         Crc32c(begin, part.end - part.begin) == checksum;
}

}  // namespace mooncake::store
