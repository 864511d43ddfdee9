#include "drivers/scenarios/covering_array.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/base/prng.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::size_t kStrengthMax = 3;
constexpr std::size_t kUnset = ~std::size_t{0};
constexpr int kCandidates = 20;  // rows tried for each one taken; more of them save few rows

// Some factors' values as ids, which count through the values of all factors; in ascending order.
struct Combination {
  std::array<std::size_t, kStrengthMax> ids{};
  std::size_t size = 0;

  [[nodiscard]] Combination with(std::size_t id) const {
    Combination longer = *this;
    std::size_t at = longer.size++;
    for (; at > 0 && longer.ids[at - 1] > id; --at) longer.ids[at] = longer.ids[at - 1];
    longer.ids[at] = id;
    return longer;
  }
};

// Greedy, one row at a time (the AETG scheme): a row starts from a combination that is still missing; the other
// factors follow in random order, each with the value that covers most of what is missing.
class Builder {
 public:
  Builder(std::span<const std::size_t> levels, unsigned strength, std::uint64_t seed)
      : levels_(levels.begin(), levels.end()), strength_(strength), random_(seed) {
    for (const std::size_t n : levels_) {
      first_id_.push_back(values_);
      for (std::size_t i = 0; i < n; ++i) factor_of_.push_back(first_id_.size() - 1);
      values_ += n;
    }
    std::size_t cells = 1;
    for (unsigned i = 0; i < strength_; ++i) cells *= values_;
    missing_.assign(cells, false);
    list_missing({}, 0);
  }

  std::vector<ArrayRow> build() {
    std::vector<ArrayRow> rows;
    while (missing_count_ > 0) {
      ArrayRow best;
      std::size_t best_gain = 0;
      for (int i = 0; i < kCandidates; ++i) {
        ArrayRow candidate = make_candidate();
        const std::size_t gain = missing_in(candidate);
        if (gain > best_gain) best = std::move(candidate);
        best_gain = std::max(gain, best_gain);
      }
      for_each_combination(best, kUnset, [&](std::size_t cell) {
        missing_count_ -= missing_[cell] ? 1 : 0;
        missing_[cell] = false;
      });
      rows.push_back(std::move(best));
    }
    return rows;
  }

 private:
  // Every choice of `strength` values of different factors, from id `from` on.
  void list_missing(Combination combination, std::size_t from) {
    if (combination.size == strength_) {
      all_.push_back(combination);
      missing_[cell_of(combination)] = true;
      ++missing_count_;
      return;
    }
    for (std::size_t id = from; id < values_; ++id) {
      const std::size_t next = factor_of_[id] + 1;
      list_missing(combination.with(id), next < levels_.size() ? first_id_[next] : values_);
    }
  }

  [[nodiscard]] std::size_t cell_of(const Combination& combination) const {
    std::size_t cell = 0;
    for (std::size_t i = 0; i < combination.size; ++i) cell = cell * values_ + combination.ids[i];
    return cell;
  }

  ArrayRow make_candidate() {
    while (!missing_[cell_of(all_[next_])]) next_ = (next_ + 1) % all_.size();
    ArrayRow row(levels_.size(), kUnset);
    for (std::size_t i = 0; i < strength_; ++i) {
      const std::size_t id = all_[next_].ids[i];
      row[factor_of_[id]] = id - first_id_[factor_of_[id]];
    }
    std::vector<std::size_t> order(levels_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    for (const std::size_t factor : order) {
      if (row[factor] == kUnset) row[factor] = best_value(row, factor);
    }
    return row;
  }

  // Of values that cover equally much any may win.
  std::size_t best_value(ArrayRow row, std::size_t factor) {
    const std::size_t start = random_.below(levels_[factor]);
    std::size_t best = start;
    std::size_t best_gain = 0;
    for (std::size_t i = 0; i < levels_[factor]; ++i) {
      row[factor] = (start + i) % levels_[factor];
      const std::size_t gain = missing_in(row, factor);
      if (gain > best_gain) best = row[factor];
      best_gain = std::max(gain, best_gain);
    }
    return best;
  }

  // Missing combinations among the row's values; with `factor`, only those that it takes part in.
  [[nodiscard]] std::size_t missing_in(const ArrayRow& row, std::size_t factor = kUnset) const {
    std::size_t count = 0;
    for_each_combination(row, factor, [&](std::size_t cell) { count += missing_[cell] ? 1 : 0; });
    return count;
  }

  template <class Body>
  void for_each_combination(const ArrayRow& row, std::size_t factor, Body&& body) const {
    const Combination combination =
        factor == kUnset ? Combination{} : Combination{}.with(first_id_[factor] + row[factor]);
    extend(row, factor, combination, 0, body);
  }

  template <class Body>
  void extend(const ArrayRow& row, std::size_t taken, const Combination& combination, std::size_t from,
              Body& body) const {
    if (combination.size == strength_) return body(cell_of(combination));
    for (std::size_t f = from; f < row.size(); ++f) {
      if (f == taken || row[f] == kUnset) continue;
      extend(row, taken, combination.with(first_id_[f] + row[f]), f + 1, body);
    }
  }

  const std::vector<std::size_t> levels_;
  const std::size_t strength_;
  Prng random_;
  std::size_t values_ = 0;              // of all factors together
  std::vector<std::size_t> first_id_;   // by factor
  std::vector<std::size_t> factor_of_;  // by id
  std::vector<Combination> all_;        // that must occur
  std::vector<bool> missing_;           // by cell: which of them occur in no row yet
  std::size_t missing_count_ = 0;
  std::size_t next_ = 0;  // in all_: where a missing one was found last
};

}  // namespace

std::vector<ArrayRow> covering_array(std::span<const std::size_t> levels, unsigned strength, std::uint64_t seed) {
  XBLK_CHECK(strength >= 1 && strength <= kStrengthMax && levels.size() >= strength, "1 to 3 factors at a time");
  return Builder(levels, strength, seed).build();
}

}  // namespace xblk::scenarios
