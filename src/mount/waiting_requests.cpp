#include "mount/waiting_requests.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "mount/tree.hpp"

namespace penstock::mount {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_pause{1}, longest_pause{50};
// A wait that is over by then is no more to a program than a slow answer, whatever signals it gets
// meanwhile. In the source its call would go on after most of them.
constexpr milliseconds no_wait{100};

}  // namespace

// Called by a serving thread; an answer from here is not allowed.
void waiting_requests::wake(fuse_req_t, void* self) {
    constexpr std::uint64_t one = 1;
    [[maybe_unused]] const auto told =
        ::write(static_cast<waiting_requests*>(self)->news_.get(), &one, sizeof one);
}

bool waiting_requests::add(fuse_req_t request, int fd, attempt again) try {
    const std::lock_guard hold(lock_);
    if (is_ending_) return false;
    if (!news_) news_ = host::owned_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!news_) return false;
    if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
    const clock::time_point now = clock::now();
    new_.push_back({request, fd, std::move(again), now, now + first_pause, first_pause});
    wake(request, this);
    return true;
} catch (const std::bad_alloc&) {
    return false;
} catch (const std::system_error&) {
    return false;
}

// True: it is over, and all that wait are to be answered.
bool waiting_requests::take_new(std::vector<item>& all) {
    std::uint64_t told = 0;
    [[maybe_unused]] const auto got = ::read(news_.get(), &told, sizeof told);
    const std::size_t before = all.size();
    bool is_over = false;
    {
        const std::lock_guard hold(lock_);
        std::move(new_.begin(), new_.end(), std::back_inserter(all));
        new_.clear();
        is_over = is_ending_;
    }
    // Calls wake() at once where the program was interrupted before.
    for (std::size_t i = before; i < all.size(); ++i)
        fuse_req_interrupt_func(all[i].request, &waiting_requests::wake, this);
    return is_over;
}

bool waiting_requests::is_done(item& each, bool is_ready, clock::time_point now) {
    if (now - each.since >= no_wait && fuse_req_interrupted(each.request) != 0) {
        reply(each.request, EINTR);
        return true;
    }
    if (!is_ready || now < each.next) return false;
    if (each.again()) return true;
    each.pause = std::min<clock::duration>(each.pause * 2, longest_pause);
    each.next = now + each.pause;
    return false;
}

// Until there is news, a file is ready, or an attempt is due. What is not tried before a pause is
// over is not polled either, since it may be ready all the time.
void waiting_requests::wait(const std::vector<item>& all, std::vector<bool>& ready) const {
    const clock::time_point now = clock::now();
    std::vector<pollfd> asked{{news_.get(), POLLIN, 0}};
    clock::duration longest = std::chrono::hours(1);
    for (const item& each : all) {
        const bool is_polled = each.fd >= 0 && now >= each.next;
        asked.push_back({is_polled ? each.fd : -1, POLLIN, 0});
        if (!is_polled) longest = std::min(longest, each.next - now);
        if (now - each.since < no_wait) longest = std::min(longest, each.since + no_wait - now);
    }
    const auto whole = std::chrono::ceil<milliseconds>(longest).count();
    ::poll(asked.data(), asked.size(), static_cast<int>(std::max<std::int64_t>(whole, 0)));
    ready.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        ready[i] = all[i].fd < 0 || asked[i + 1].revents != 0;
}

void waiting_requests::serve() {
    std::vector<item> all;
    std::vector<bool> ready;
    while (!take_new(all)) {
        ready.resize(all.size(), false);
        const clock::time_point now = clock::now();
        std::size_t kept = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (is_done(all[i], ready[i], now)) continue;
            if (kept != i) all[kept] = std::move(all[i]);
            ++kept;
        }
        all.resize(kept);
        wait(all, ready);
    }
    for (const item& each : all) reply(each.request, ENOTCONN);
}

void waiting_requests::end() {
    {
        const std::lock_guard hold(lock_);
        is_ending_ = true;
        if (news_) wake(nullptr, this);
    }
    if (worker_.joinable()) worker_.join();
}

}  // namespace penstock::mount
