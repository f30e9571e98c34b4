#include "store/object_view.h"

#include <cstring>

#include "base/crc32c.h"

namespace mooncake::store {
namespace {

// Whether `view` is the object's only extent, header and all.
bool IsRight(const Reader& reader, const View& view, bool verifies) {
  HeaderBytes header;
  std::memcpy(header.data(), view.data(), header.size());
  if (!IsHeader(header, reader.HeaderOf(0, 0))) return false;
  const Reader::Item& item = reader.item(0);
  if (!verifies || !item.has_checksums) return true;
  const Range payload{reinterpret_cast<uint64_t>(view.data()) + kHeaderBytes,
                      item.shape.size_bytes};
  bool is_right = true;
  ForEachCut(item.shape, {&payload, 1}, 0,
             [&](const Chunk& chunk, uint64_t address, uint64_t, uint64_t length) {
               const uint32_t sum = Crc32c(reinterpret_cast<const void*>(address), length);
               is_right = is_right && sum == item.checksums[chunk.index];
             });
  return is_right;
}

// Null: this copy cannot be read in place.
std::shared_ptr<View> MapCopy(Context& context, const Reader& reader, const Placement& extent) {
  const Reader::Item& item = reader.item(0);
  const NodeAddress& node = reader.NodeOf(item, extent);
  if (!context.segments.IsNear(node)) return nullptr;
  Engine& engine = context.session.engine();
  const Deadline deadline = context.DataDeadline(0);
  const auto segment = context.segments.Open(node, engine.peer_id(), deadline);
  if (!segment.ok()) return nullptr;
  auto view =
      engine.Map(segment.value(), extent.offset, kHeaderBytes + item.shape.size_bytes, deadline);
  return view.ok() ? std::move(view).value() : nullptr;
}

}  // namespace

Result<std::shared_ptr<ObjectView>> ObjectView::Make(std::shared_ptr<Context> context,
                                                     std::shared_ptr<Reader> reader) {
  if (reader->LeadingCount() == 0) return std::shared_ptr<ObjectView>();
  const Reader::Item& item = reader->item(0);
  const bool is_one_run = item.shape.stripe_count() == 1;
  for (uint32_t copy = 0; is_one_run && copy < item.copies; ++copy) {
    auto view = MapCopy(*context, *reader, item.extents[copy]);
    if (view == nullptr) continue;
    if (IsRight(*reader, *view, context->has_checksums)) {
      const Status valid = reader->Validity();
      if (valid.code() == Code::kClosed) return valid;
      if (!valid.ok()) return std::shared_ptr<ObjectView>();
      return std::make_shared<ObjectView>(std::move(reader), std::move(view));
    }
    reader->ReportCorrupt(0, reader->NodeOf(item, item.extents[copy]).node);
  }
  ScratchPool::Scratch memory = context->scratch.Take(item.shape.size_bytes);
  MC_RETURN_IF_ERROR(memory.status());
  const Range range{reinterpret_cast<uint64_t>(memory.data()), item.shape.size_bytes};
  const Reader::Request request{0, 0, {&range, 1}};
  const auto read = reader->Read({&request, 1});
  if (!read.ok()) return read.status();
  const uint64_t size_bytes = item.shape.size_bytes;
  reader->Close();
  if (!read.value()[0]) return std::shared_ptr<ObjectView>();
  return std::make_shared<ObjectView>(std::move(context), std::move(memory), size_bytes);
}

}  // namespace mooncake::store
