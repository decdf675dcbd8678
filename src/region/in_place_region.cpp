#include "region/in_place_region.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "region/file_answer.hpp"

namespace penstock::region {

namespace {

using clock = std::chrono::steady_clock;

unsigned registering_threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, 16u); }

std::uint64_t nanoseconds_since(clock::time_point began) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - began).count());
}

// Of a registration. The upper bound: one of a very large range is reported to fail on some
// drivers. The lower bound: each costs a call of the driver, and a copy of CUDA may end at its
// border.
constexpr std::uint64_t least_registered_bytes = 64u << 20, most_registered_bytes = 1ull << 30;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t grain) {
    return (bytes + grain - 1) / grain * grain;
}

}  // namespace

in_place_region::in_place_region(file_part part, std::unique_ptr<mapping_reader> reader,
                                 std::function<void(const std::string&)> say)
    : part_(std::move(part)),
      env_(part_.home->env()),
      mapped_bytes_(round_up(part_.bytes, page_bytes)),
      reader_(std::move(reader)),
      say_(std::move(say)),
      pages_(env_) {}

in_place_region::~in_place_region() {
    const std::lock_guard lock(mutex_);
    close_locked();
}

void in_place_region::close_locked() {
    if (data_ == nullptr) return;
    for (std::uint64_t i = 0; i < registered_.size(); ++i) remove(i);
    registered_.clear();
    env_.unmap_file(data_, mapped_bytes_);
    data_ = nullptr;
    part_.home.reset();
}

status in_place_region::open() try {
    const std::lock_guard lock(mutex_);
    void* mapped = nullptr;
    const int file = part_.home->handle();
    if (const int code = env_.map_file(file, part_.offset, mapped_bytes_, mapped); code != 0)
        return {code, "the file cannot be mapped: " + error_text(code) +
                          "; leave region_options::placement at filled"};
    data_ = static_cast<std::byte*>(mapped);
    status made;
    host::file_facts facts;
    if (reader_->registers()) {
        watch_code_ = pages_.begin(file, part_.offset, mapped_bytes_);
        if (const int code = look(facts); code != 0) made = {code, error_text(code)};
        if (made.ok()) made = reach_all();
        known_ = facts.identity;  // as before the pages were pinned
        doubtful_ = host::may_change_unseen(facts);
        if (made.ok() && watch_code_ != 0) say_unwatched(watch_code_);
    }
    if (made.ok())
        if (const int code = look(facts); code != 0)
            made = {code, code == -ESTALE ? "the file became shorter meanwhile; map what is left"
                                          : error_text(code)};
    if (!made.ok()) close_locked();
    return made;
} catch (...) {
    const status s = host::status_of_exception("");
    const std::lock_guard lock(mutex_);
    close_locked();
    return s;
}

void in_place_region::say_unwatched(int code) {
    say_("region of '" + part_.path + "', in place: its pages cannot be watched (" +
         error_text(code) +
         "), so acquire does not find pages that leave the file: after a cut, a punched hole or a "
         "write past the page cache kernels read old bytes; have /proc mounted, and Linux 5.14 or "
         "newer");
}

// By several threads. The first error, after which threads begin no more parts.
status in_place_region::for_parts(const part_step& step) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex first;
    status out;
    const auto work = [&](unsigned) {
        for (std::uint64_t i = next++; i < registered_.size() && !failed; i = next++) {
            status s;
            try {
                s = step(i);
            } catch (...) {
                s = host::status_of_exception("");
            }
            if (s.ok()) continue;
            failed = true;
            const std::lock_guard hold(first);
            if (out.ok()) out = std::move(s);
        }
    };
    threads_.run(
        static_cast<unsigned>(std::min<std::uint64_t>(registering_threads(), registered_.size())),
        work);
    return out;
}

status in_place_region::reach_all() {
    part_bytes_ = std::clamp(round_up(mapped_bytes_ / registering_threads(), chunk_bytes),
                             least_registered_bytes, most_registered_bytes);
    registered_.assign((mapped_bytes_ + part_bytes_ - 1) / part_bytes_, 0);
    const clock::time_point began = clock::now();
    status out = for_parts([this](std::uint64_t number) { return reach(number); });
    traffic_.register_ns = nanoseconds_since(began);
    if (out.ok()) traffic_.bytes_registered = mapped_bytes_;
    return out;
}

// Brings the pages of a part into memory, where they may come from the disk, watches them, and then
// has the driver pin them. A page that leaves the file in between is found at the next look.
status in_place_region::reach(std::uint64_t number) {
    const std::uint64_t at = number * part_bytes_;
    const std::uint64_t bytes = std::min(part_bytes_, mapped_bytes_ - at);
    int code = watch_code_ == 0 ? pages_.watch(at, bytes) : 0;
    if (code == -EINVAL) watch_code_ = code;
    // Where the system has no such call, registering brings the pages.
    if (code == 0 || code == -EINVAL) code = env_.populate(data_ + at, bytes);
    if (code != 0 && code != -EINVAL)
        return {code, "its pages cannot be brought into memory: " + error_text(code) +
                          "; is the file as long as before, and does its disk work?"};
    if (status s = reader_->add(data_ + at, bytes); !s.ok()) return s;
    registered_[number] = 1;
    return {};
}

void in_place_region::remove(std::uint64_t number) {
    if (registered_[number] == 0) return;
    reader_->remove(data_ + number * part_bytes_);
    registered_[number] = 0;
}

int in_place_region::look(host::file_facts& facts) const {
    if (const int code = env_.facts(part_.home->handle(), facts); code != 0)
        return file_answer(code);
    return facts.identity.size_bytes < part_.offset + part_.bytes ? -ESTALE : 0;
}

// What programs of a mount have stored comes to the file first.
int in_place_region::bring_up_to_date(void* stream) {
    if (const int code = part_.home->collect_from_programs(); code != 0) return file_answer(code);
    host::file_facts facts;
    if (const int code = look(facts); code != 0 || !reader_->registers()) return code;
    const bool whole = std::find(registered_.begin(), registered_.end(), 0) == registered_.end();
    if (whole && (watch_code_ != 0 || (!doubtful_ && facts.identity == known_))) return 0;
    if (const int code = replace_parts(stream, facts); code != 0) return code;
    return look(facts);
}

// Registers anew the parts of which pages have left the file since it had these facts.
int in_place_region::replace_parts(void* stream, const host::file_facts& facts) {
    std::vector<char> left(registered_.size(), 0);
    const auto find = [&](std::uint64_t i) {
        left[i] = registered_[i] == 0 ||
                  (watch_code_ == 0 &&
                   pages_.has_left(i * part_bytes_,
                                   std::min(part_bytes_, mapped_bytes_ - i * part_bytes_)));
        return status{};
    };
    if (const status s = for_parts(find); !s.ok()) return s.code;
    if (std::find(left.begin(), left.end(), 1) != left.end()) {
        if (const int code = reader_->wait(stream); code != 0) return code;
        const clock::time_point began = clock::now();
        const status made = for_parts([&](std::uint64_t i) {
            if (left[i] == 0) return status{};
            remove(i);
            return reach(i);
        });
        traffic_.register_ns += nanoseconds_since(began);
        if (!made.ok()) {
            say_("region of '" + part_.path +
                 "', acquire: a part of it is not registered now, and "
                 "a kernel must not use it until an acquire succeeds: " +
                 made.message);
            return made.code;
        }
        for (std::uint64_t i = 0; i < left.size(); ++i)
            if (left[i] != 0)
                traffic_.bytes_registered += std::min(part_bytes_, mapped_bytes_ - i * part_bytes_);
    }
    known_ = facts.identity;
    doubtful_ = host::may_change_unseen(facts);
    return 0;
}

// An error is said in the log once it has happened, for the caller has the code only.
std::int64_t in_place_region::told(std::int64_t code, const char* operation) {
    if (code >= 0 || loss_said_) return code;
    const std::string subject = "region of '" + part_.path + "', " + operation + ": ";
    if (const status loss = reader_->lost(); !loss.ok()) {
        loss_said_ = true;
        say_(subject + loss.message +
             "; close the region, and map it anew in a runtime that is whole");
    } else if (code == -ESTALE) {
        say_(subject +
             "the file is shorter than the region now; close the region and map what is "
             "left, or acquire it when the file is as long again");
    } else if (code == -EBUSY) {
        say_(subject +
             "the stream is being captured, or it is the legacy stream and another one "
             "is; end the capture first, or give a stream");
    } else if (std::string(operation) == "sync") {
        say_(subject + error_text(code) + cure_of_a_sync);
    } else {
        say_(subject + error_text(code) + "; nothing is lost, and the next " + operation +
             " tries again");
    }
    return code;
}

std::int64_t in_place_region::acquire(const region_part& part, void* stream) try {
    if (!belongs_here()) return -ECHILD;
    if (!contains(part)) return -EINVAL;
    const std::lock_guard lock(mutex_);
    if (!is_open()) return -EBADF;
    if (const status loss = reader_->lost(); !loss.ok()) return told(loss.code, "acquire");
    return told(bring_up_to_date(stream), "acquire");
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t in_place_region::release(const region_part& part, void*) {
    if (!belongs_here()) return -ECHILD;
    if (!contains(part)) return -EINVAL;
    const std::lock_guard lock(mutex_);
    return is_open() ? 0 : -EBADF;
}

int in_place_region::sync() try {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    return is_open() ? static_cast<int>(told(file_answer(part_.home->sync()), "sync")) : -EBADF;
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t in_place_region::prefer(std::uint64_t offset, std::uint64_t bytes, void*) {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (!is_open()) return -EBADF;
    return offset > part_.bytes || bytes > part_.bytes - offset ? -EINVAL : 0;
}

int in_place_region::close(void*) {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (data_ == nullptr) return -EBADF;
    const int code = is_open() ? 0 : -EBADF;
    close_locked();
    return code;
}

int in_place_region::detach(void*) {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (!is_open()) return -EBADF;
    is_detached_ = true;
    part_.home.reset();  // the mapping holds what it needs of the file
    return 0;
}

region_traffic in_place_region::traffic() const {
    if (!belongs_here()) return {};
    const std::lock_guard lock(mutex_);
    return traffic_;
}

}  // namespace penstock::region
