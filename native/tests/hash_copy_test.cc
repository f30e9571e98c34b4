// Checksums while copying: of batches of every shape, over every way that there is.
#include "transfer/transports/hash_copy.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/crc32c.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/transports/stream_copy.h"

namespace mooncake {
namespace {

constexpr SameHost kBothWays[] = {SameHost::kShm, SameHost::kNetwork};

Deadline Soon() { return Deadline::After(20); }

std::vector<uint8_t> RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::vector<uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(CopiesAreHashedAtEveryLengthAndAlignment) {
  const std::vector<uint8_t> source = RandomBytes(40'000);
  std::vector<uint8_t> target(source.size());
  for (const bool is_streamed : {false, true}) {
    for (size_t size = 0; size < 20'000; size += 1 + size / 37) {
      const size_t from = size % 67;
      const size_t to = size % 71;
      std::fill(target.begin(), target.end(), uint8_t{0xaa});
      const uint32_t crc = HashCopy(&target[to], &source[from], size, 5, is_streamed);
      StreamFence();
      EXPECT(crc == Crc32cByTable(&source[from], size, 5));
      EXPECT(std::memcmp(&target[to], &source[from], size) == 0);
      EXPECT(target[to + size] == 0xaa && (to == 0 || target[to - 1] == 0xaa));
    }
  }
}

// A user with local memory, and an owner whose segment it has open: taken, or lent.
struct Bed {
  explicit Bed(SameHost same_host, bool is_lent = false)
      : owner(Engine::Create({.same_host = same_host}).value()),
        user(Engine::Create({.same_host = same_host, .slice_bytes = 100'000}).value()),
        own(RandomBytes(kBytes)),
        lent(kBytes) {
    segment = is_lent ? owner->Lend(reinterpret_cast<uint64_t>(lent.data()), kBytes).value()
                      : owner->CreateSegment(kBytes).value();
    remote = user->OpenSegment(owner->endpoint(), segment->id(), Soon()).value();
    EXPECT(user->RegisterBuffer(Address(0), kBytes).ok());
  }

  uint64_t Address(uint64_t offset) const { return reinterpret_cast<uint64_t>(&own[offset]); }

  // Of the bytes that pieces have here.
  std::vector<uint32_t> Expected(const std::vector<Piece>& pieces) const {
    std::vector<uint32_t> checksums;
    for (const Piece& piece : pieces) {
      checksums.push_back(
          Crc32cByTable(reinterpret_cast<const void*>(piece.address), piece.length));
    }
    return checksums;
  }

  // Writes pieces, wipes them, and reads them back.
  void CheckBothWays(const std::vector<Piece>& pieces) {
    const std::vector<uint32_t> expected = Expected(pieces);
    for (const Op op : {Op::kWrite, Op::kRead}) {
      std::vector<uint32_t> checksums(pieces.size(), 1);
      EXPECT(user->Execute(op, remote, pieces, {.deadline = Soon(), .checksums = checksums}).ok());
      EXPECT(checksums == expected);
      for (const Piece& piece : pieces) {
        if (op == Op::kWrite) std::memset(reinterpret_cast<void*>(piece.address), 0, piece.length);
      }
    }
    EXPECT(Expected(pieces) == expected);
  }

  static constexpr uint64_t kBytes = 12u << 20;
  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::vector<uint8_t> own;
  std::vector<uint8_t> lent;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<RemoteSegment> remote;
};

// Empty ones, some that join on both sides, some larger than a part of a copy or a slice.
std::vector<Piece> OddPieces(const Bed& bed) {
  std::vector<Piece> pieces;
  uint64_t at = 3;
  for (const uint64_t length : {0u, 1u, 64u, 4096u, 0u, 1'048'575u, 1'048'577u, 5'000'000u, 97u}) {
    pieces.push_back({bed.Address(at), at, length});
    at += length;
  }
  pieces.push_back({bed.Address(at + 7), at + 100, 300'000});
  pieces.push_back({bed.Address(at), at, 0});
  return pieces;
}

std::vector<Piece> ManyPieces(const Bed& bed) {
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 3'000; ++i)
    pieces.push_back({bed.Address(i * 97), i * 200, 97 - i % 98});
  return pieces;
}

TEST(ChecksumsOfBatchesAreRightOnEveryTransport) {
  for (const SameHost same_host : kBothWays) {
    for (const bool is_lent : {false, true}) {
      Bed bed(same_host, is_lent);
      bed.CheckBothWays(OddPieces(bed));
      bed.CheckBothWays(ManyPieces(bed));
      bed.CheckBothWays({{bed.Address(0), 0, 0}});
    }
  }
}

TEST(SubmittedBatchesGetTheirOwnChecksums) {
  constexpr size_t kBatches = 200;
  for (const SameHost same_host : kBothWays) {
    const Bed bed(same_host);
    std::vector<std::vector<uint32_t>> checksums(kBatches, std::vector<uint32_t>(2, 1));
    std::vector<std::vector<Piece>> batches;
    std::vector<std::shared_ptr<Transfer>> transfers;
    for (size_t i = 0; i < kBatches; ++i) {
      batches.push_back({{bed.Address(i * 5000), i * 5000, 4096},
                         {bed.Address(i * 5000 + 4096), i * 5000 + 4096, i}});
      BatchOptions options{Soon()};
      if (i % 3 != 0) options.checksums = checksums[i];
      transfers.push_back(bed.user->Submit(Op::kWrite, bed.remote, batches[i], options).value());
    }
    for (size_t i = 0; i < kBatches; ++i) {
      EXPECT(transfers[i]->Wait(Soon())->ok());
      EXPECT(checksums[i] == (i % 3 != 0 ? bed.Expected(batches[i]) : std::vector<uint32_t>(2, 1)));
    }
  }
}

TEST(ChecksumsThatDoNotMatchThePiecesAreRefused) {
  const Bed bed(SameHost::kShm);
  const std::vector<Piece> pieces(2, Piece{bed.Address(0), 0, 8});
  std::vector<uint32_t> checksums(3);
  const BatchOptions options{.deadline = Soon(), .checksums = checksums};
  EXPECT(bed.user->Execute(Op::kWrite, bed.remote, pieces, options).code() ==
         Code::kInvalidArgument);
  const auto prepared = bed.user->Prepare(Op::kWrite, bed.remote, pieces).value();
  EXPECT(bed.user->Execute(*prepared, options).code() == Code::kInvalidArgument);
  EXPECT(bed.user->Submit(*prepared, options).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
