#include "transfer/path_offer.h"

#include <cmath>
#include <limits>

namespace mooncake {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kGlance = 64 << 10;  // offers are compared by when so many bytes would be done

// When the paths would have done `left` bytes, were they free to go anywhere: by those that could
// do something worth while until then. Never: none could, one slice is all that it takes.
double BestEndS(std::span<const PathOffer> offers, double left) {
  double end_s = kNever;
  while (true) {
    double bytes = left;
    double rate = 0;
    for (const PathOffer& offer : offers) {  // judged by the last guess
      if (offer.Share(end_s) <= offer.least / 2) continue;
      bytes += offer.queued + offer.latency_s * offer.rate;
      rate += offer.rate;
    }
    const double guess_s = bytes / rate;
    if (!(guess_s < end_s)) return guess_s;
    end_s = guess_s;
  }
}

// A share of the bytes that are left, in slices of even size.
double Cut(const PathOffer& offer, double share, double left) {
  double bytes = std::clamp(share, std::min(offer.least, left), left);
  if (left - bytes < offer.least / 2) bytes = left;
  return std::min(bytes / std::max(1.0, std::ceil(bytes / offer.most)), offer.most);
}

}  // namespace

std::optional<OfferTaken> TakeOffer(std::span<const PathOffer> offers, uint64_t left_bytes,
                                    bool is_first) {
  const auto left = static_cast<double>(left_bytes);
  const PathOffer* soonest = nullptr;
  const PathOffer* taken = nullptr;
  double soonest_s = kNever;
  double taken_s = kNever;
  for (const PathOffer& offer : offers) {
    const double end_s = offer.EndS(kGlance);
    if (end_s < soonest_s) soonest = &offer, soonest_s = end_s;
    const bool can_take = offer.is_open && (is_first || offer.has_room);
    if (can_take && end_s < taken_s) taken = &offer, taken_s = end_s;
  }
  if (taken == nullptr) return std::nullopt;

  const double bytes = Cut(*taken, taken->Share(BestEndS(offers, left)), left);
  if (taken != soonest &&
      !is_first) {  // near the end the others may have done all before this path is done
    const double end_s = taken->EndS(bytes);
    double others = 0;
    for (const PathOffer& offer : offers) others += &offer == taken ? 0 : offer.Share(end_s);
    if (others >= left) return std::nullopt;
  }
  return OfferTaken{taken->path, static_cast<uint64_t>(std::ceil(bytes))};
}

}  // namespace mooncake
