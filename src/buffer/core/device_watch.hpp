// Whether the device's part of a buffer of whole pages pays, and what to do where it does not: a
// state machine without a clock and without locks. Requests go in with the time that each took;
// answers come out. The same requests in the same order give the same answers.
//
// A page that leaves the host for the device costs its caller a copy and a call of the device. It
// pays if the page is wanted again while the device has it, since the device then answers in place
// of the disk. Whether that is so depends on the trace, the disk and the device, so it is measured:
//
//   share   of the requests that the device answers; while it is out of use, that it would answer
//           (shadow_list.hpp)
//   plain   time of a request that moves nothing: the victim is dropped, as in `native`
//   extra   time that a victim's move to the device adds to a request
//   hit     time of a request that the device answers
//   gain    share x (plain - hit) - (1 - share) x extra, as a share of plain
//
//   state          victims go to the device           and next
//   measuring      all but one in eight               when the times are known: engaged if a move
//                                                     adds less than 1 %, probing if it adds less
//                                                     than 10 %, else standing_back
//   engaged        all but one in 64, for `plain`     standing_back if the gain is below -1 %
//   standing_back  so few that it costs 0.5 %         probing if the gain would be above 3 % in two
//                                                     epochs, after a wait
//   probing        as engaged                         when as many moved as the device has frames:
//                                                     engaged, or standing_back by the gain
//
// A wait is twice as long as the one before, until the device part was in use for long. Beside the
// gain there is a ledger: what requests took beyond `plain`, less what they saved. It may be above
// 1 % of the time of all requests only after a probe began, and by no more than one filling of the
// device costs; otherwise the watch stands back until that is earned again.
//
// Guarded by the manager's lock.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buffer/core/shadow_list.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

// The mean of times that change: of the last thousand or so. A time counts as eight times the mean
// at most, so that a thread that lost its processor says nothing of the device. Where a block of
// times is twice the mean or half of it, twice one after the other, it is the mean from then on.
class recent_mean {
public:
    void add(std::uint64_t ns) {
        const double most = count_ >= block ? 8 * value() : static_cast<double>(ns);
        block_sum_ += std::min(static_cast<double>(ns), most);
        if (++in_block_ < block) return;
        const double here = block_sum_ / block, mean = value();
        const bool jumps = count_ != 0 && (here > 2 * mean || here < mean / 2);
        if (jumps && jumped_) sum_ = count_ = 0;
        if (!jumps || jumped_) sum_ += block_sum_, count_ += block;
        jumped_ = jumps && !jumped_;
        if (count_ >= most_counted) sum_ /= 2, count_ /= 2;
        block_sum_ = in_block_ = 0;
    }
    [[nodiscard]] bool is_known() const { return count_ != 0; }
    [[nodiscard]] double value() const { return count_ != 0 ? sum_ / count_ : 0; }
    [[nodiscard]] double count() const { return count_; }

private:
    static constexpr std::uint32_t block = 32;
    static constexpr double most_counted = 1024;

    double sum_ = 0, count_ = 0, block_sum_ = 0;
    std::uint32_t in_block_ = 0;
    bool jumped_ = false;
};

// By how much requests of one kind take longer than those of another, of which one kind is rare:
// each rare request is compared with those of the other kind just before it, so that a disk that
// becomes slower or faster for all says nothing.
class paired_difference {
public:
    // Of the kind that is frequent now, and of the rare one. `sign`: 1 if the rare kind is the one
    // that should take longer, else -1.
    void add_frequent(double ns) {
        before_ += (std::min(ns, most(ns)) - before_) / std::min(++known_, span);
    }
    void add_rare(double ns, double sign) {
        if (known_ < least_known) return;
        const double more = sign * (std::min(ns, most(ns)) - before_);
        sum_ += more, squares_ += more * more, count_ += 1;
        if (count_ >= most_counted) sum_ /= 2, squares_ /= 2, count_ /= 2;
    }
    // The two kinds change places.
    void turn() { known_ = before_ = 0; }
    [[nodiscard]] double count() const { return count_; }
    [[nodiscard]] double value() const { return count_ != 0 ? sum_ / count_ : 0; }
    // It is larger than this but for one case in a hundred or so.
    [[nodiscard]] double at_least() const {
        if (count_ < least_counted) return 0;
        const double variance = squares_ / count_ - value() * value();
        return value() - 2.5 * std::sqrt(std::max(variance, 0.0) / count_);
    }

private:
    static constexpr double span = 32, least_known = 16, least_counted = 32, most_counted = 512;

    [[nodiscard]] double most(double ns) const { return known_ < least_known ? ns : 8 * before_; }

    double before_ = 0, known_ = 0, sum_ = 0, squares_ = 0, count_ = 0;
};

class device_watch {
public:
    enum class state : std::uint8_t { measuring, engaged, standing_back, probing };
    enum class request_kind : std::uint8_t {
        plain,     // read from its file; no victim, or one that was dropped
        demoting,  // the same, and a victim went to the device
        answered   // by the device
    };
    struct request {
        request_kind kind = request_kind::plain;
        std::uint64_t ns = 0;
        std::uint64_t device_ns = 0;  // of it: what only the device makes necessary
        shadow_list::answer shadow = shadow_list::answer::unfollowed;
    };

    explicit device_watch(std::uint32_t device_pages) : device_pages_(device_pages) {}

    // A request needs a frame: whether the host's victim goes to the device. `is_full`: the device
    // has no free frame. While it has, no page is lost to know what a plain request takes.
    bool demotes(bool is_full) {
        if (state_ == state::standing_back) return draw() % probe_interval() == 0;
        if (state_ == state::measuring) return draw() % 8 != 0;
        return !is_full || draw() % plain_interval != 0;
    }
    // A clean page is in the device: whether the device answers, or the disk does.
    bool answers() {
        const bool is_faster = !plain_.is_known() || hit() <= plain_.value();
        return is_faster ? draw() % answered_interval != 0 : draw() % plain_interval == 0;
    }

    void ended(const request& done) {
        ++requests_;
        note_times(done);
        note_cost(done);
        if (done.shadow != shadow_list::answer::unfollowed) ++followed_;
        if (done.shadow == shadow_list::answer::present) ++forecast_;
        if (state_ == state::measuring && (are_times_known() || is_dear())) settle();
        if (is_overdrawn()) stand_back();
        if (requests_ >= epoch_requests) end_epoch();
    }

    [[nodiscard]] state now() const { return state_; }
    [[nodiscard]] std::uint64_t times_back() const { return times_back_; }
    // What the states are decided by: a share of `plain` for each request.
    [[nodiscard]] double gain() const { return gain_at(share_); }

    static constexpr std::uint32_t epoch_requests = 1024;

private:
    static constexpr std::uint64_t plain_interval = 64, answered_interval = 256;
    static constexpr double probe_cost = 0.005, most_owed = 0.01, worst_gain = -0.01,
                            best_gain = 0.03;
    static constexpr std::uint32_t first_wait = 4, longest_wait = 256;

    std::uint64_t draw() { return mix64(++drawn_) >> 8; }

    // By so much a move makes a request longer: what requests with one take more. That is a
    // difference of times that vary with the disk, so it is no more than what the device took,
    // unless it surely is.
    [[nodiscard]] double extra() const {
        return std::max(std::clamp(more_.value(), 0.0, device_.value()), more_.at_least());
    }
    // A hit that was never seen is thought to take half of a read, so that a probe finds out; but
    // no less than the move of one page.
    [[nodiscard]] double hit() const {
        return hit_.is_known() ? hit_.value() : std::max(plain_.value() / 2, device_.value());
    }
    [[nodiscard]] double gain_at(double share) const {
        if (plain_.value() <= 0 || !demoting_.is_known()) return 0;
        return (share * (plain_.value() - hit()) - (1 - share) * extra()) / plain_.value();
    }
    [[nodiscard]] bool are_times_known() const {
        return plain_.count() >= least_count && demoting_.count() >= 2 * least_count &&
               more_.count() >= least_count && plain_.value() > 0;
    }
    // A few moves say so.
    [[nodiscard]] bool is_dear() const {
        return plain_.is_known() && more_.count() >= least_count / 4 &&
               extra() > dear * plain_.value();
    }
    static constexpr double least_count = 64, dear = 0.1;

    // A move in so many requests costs `probe_cost` of all.
    [[nodiscard]] std::uint64_t probe_interval() const {
        const double every = plain_.value() > 0 ? extra() / plain_.value() / probe_cost : 8;
        return static_cast<std::uint64_t>(std::clamp(every, 8.0, 4096.0));
    }
    [[nodiscard]] double allowed() const { return most_owed * native_; }

    void note_times(const request& done) {
        switch (done.kind) {
            case request_kind::answered: ++answered_; return hit_.add(done.ns);
            case request_kind::plain: plain_.add(done.ns); break;
            case request_kind::demoting: demoting_.add(done.ns); device_.add(done.device_ns);
        }
        const bool is_rare =
            (done.kind == request_kind::demoting) == (state_ == state::standing_back);
        const auto ns = static_cast<double>(done.ns);
        if (!is_rare) more_.add_frequent(ns);
        else more_.add_rare(ns, done.kind == request_kind::demoting ? 1 : -1);
    }
    void note_cost(const request& done) {
        const double plain = plain_.value();
        native_ += plain;
        if (done.kind == request_kind::demoting) owed_ += extra(), ++probed_;
        if (done.kind == request_kind::answered)
            owed_ += std::min(static_cast<double>(done.ns), 8 * plain) - plain;
        // What was saved long ago is no reason to lose now.
        owed_ = std::max(owed_, -filling());
        if (owed_ <= allowed()) advance_ = state_ == state::probing ? advance_ : 0;
    }
    // What it costs to fill the device.
    [[nodiscard]] double filling() const { return extra() * device_pages_; }
    [[nodiscard]] bool is_overdrawn() const {
        return (state_ == state::engaged || state_ == state::probing) &&
               owed_ > allowed() + advance_;
    }

    void settle() {
        if (gain_at(0) > worst_gain) state_ = state::engaged;
        else if (!is_dear()) probe();
        else stand_back();
    }
    void stand_back() {
        state_ = state::standing_back;
        more_.turn();
        ++times_back_;
        left_ = wait_;
        wait_ = std::min(2 * wait_, longest_wait);
        good_epochs_ = 0;
    }
    void probe() {
        if (state_ == state::standing_back) more_.turn();
        state_ = state::probing;
        probed_ = probe_epochs_ = 0;
        advance_ = filling();
    }

    void end_epoch() {
        // A device that is not full answers less than it will.
        const bool is_used = state_ == state::engaged;
        if (is_used) share_ += (ratio(answered_, requests_) - share_) / 4;
        else if (followed_ != 0) share_ += (ratio(forecast_, followed_) - share_) / 4;
        requests_ = answered_ = followed_ = forecast_ = 0;
        switch (state_) {
            case state::measuring: return;
            case state::engaged:
                if (gain() < worst_gain) return stand_back();
                if (++engaged_epochs_ >= longest_wait) wait_ = first_wait;
                return;
            case state::standing_back:
                good_epochs_ = gain() > best_gain ? good_epochs_ + 1 : 0;
                if (left_ != 0) --left_;
                if (left_ == 0 && good_epochs_ >= 2 && owed_ <= allowed()) probe();
                return;
            case state::probing: {
                ++probe_epochs_;
                const bool is_full =
                    probe_epochs_ >= least_probe_epochs &&
                    (probed_ >= device_pages_ || probe_epochs_ >= most_probe_epochs());
                // At the beginning the shadow list is no fuller than the device.
                if ((is_full || times_back_ != 0) && gain() < worst_gain) return stand_back();
                if (!is_full) return;
                state_ = state::engaged;
                engaged_epochs_ = 0;
            }
        }
    }
    static constexpr std::uint64_t least_probe_epochs = 4;  // in which the share becomes known
    // Pages that the device has already need not move.
    [[nodiscard]] std::uint64_t most_probe_epochs() const {
        return 2 * std::uint64_t{device_pages_} / epoch_requests + least_probe_epochs;
    }
    static double ratio(std::uint64_t part, std::uint64_t all) {
        return all != 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
    }

    const std::uint32_t device_pages_;
    state state_ = state::measuring;
    recent_mean plain_, demoting_, hit_;
    recent_mean device_;      // of the demoting ones: what the device took
    paired_difference more_;  // demoting beyond plain
    double native_ = 0, owed_ = 0, advance_ = 0, share_ = 0;
    std::uint64_t drawn_ = 0, times_back_ = 0;
    std::uint64_t requests_ = 0, answered_ = 0, followed_ = 0, forecast_ = 0, probed_ = 0,
                  probe_epochs_ = 0;
    std::uint32_t wait_ = first_wait, left_ = 0, good_epochs_ = 0, engaged_epochs_ = 0;
};

}  // namespace penstock::buffer
