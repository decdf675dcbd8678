#include "region/in_place_region.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "os/exceptions.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

namespace {

constexpr unsigned registering_threads = 16;
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
      mapped_bytes_(round_up(part_.bytes, page_bytes)),
      reader_(std::move(reader)),
      say_(std::move(say)),
      end_(env()) {}

in_place_region::~in_place_region() {
    const std::lock_guard lock(mutex_);
    close_locked();
}

void in_place_region::close_locked() {
    if (data_ == nullptr) return;
    for (std::uint64_t i = 0; i < registered_.size(); ++i)
        if (registered_[i] != 0) reader_->remove(data_ + i * part_bytes_);
    registered_.clear();
    env().unmap_file(data_, mapped_bytes_);
    data_ = nullptr;
}

status in_place_region::open() try {
    const std::lock_guard lock(mutex_);
    void* mapped = nullptr;
    if (const int code = env().map_file(part_.home->handle(), part_.offset, mapped_bytes_, mapped);
        code != 0)
        return {code, "the file cannot be mapped: " + error_text(code) +
                          "; leave region_options::placement at filled"};
    data_ = static_cast<std::byte*>(mapped);
    status made;
    if (reader_->registers()) {
        watch_end();  // before the pages are pinned, so that a cut from now on is found
        made = reach();
    }
    if (made.ok())
        if (const int code = check_file(); code != 0)
            made = {code, "the file became shorter while it was mapped; map what is left"};
    if (!made.ok()) close_locked();
    return made;
} catch (...) {
    const status s = host::status_of_exception("");
    const std::lock_guard lock(mutex_);
    close_locked();
    return s;
}

void in_place_region::watch_end() {
    const std::uint64_t last = part_.offset + mapped_bytes_ - page_bytes;
    if (const int code = end_.begin(part_.home->handle(), last); code != 0)
        say_("region of '" + part_.path + "', in place: its last page cannot be watched (" +
             error_text(code) +
             "), so acquire finds a file that is shorter, and not one that was cut and is as long "
             "again; allow the process to lock a page (RLIMIT_MEMLOCK) and have /proc mounted");
}

// By several threads: each brings the pages of a part into memory, where they may come from the
// disk, and then has the driver pin them.
status in_place_region::reach() {
    const unsigned threads =
        std::clamp(std::thread::hardware_concurrency(), 1u, registering_threads);
    part_bytes_ = std::clamp(round_up(mapped_bytes_ / threads, chunk_bytes), least_registered_bytes,
                             most_registered_bytes);
    registered_.assign((mapped_bytes_ + part_bytes_ - 1) / part_bytes_, 0);
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex first;
    status out;
    const auto work = [&](unsigned) {
        for (std::uint64_t i = next++; i < registered_.size() && !failed; i = next++) {
            status s = reach_part(i);
            if (s.ok()) continue;
            failed = true;
            const std::lock_guard hold(first);
            if (out.ok()) out = std::move(s);
        }
    };
    const auto began = std::chrono::steady_clock::now();
    helpers().run(static_cast<unsigned>(std::min<std::uint64_t>(threads, registered_.size())),
                  work);
    traffic_.register_ns = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count());
    if (out.ok()) traffic_.bytes_registered = mapped_bytes_;
    return out;
}

status in_place_region::reach_part(std::uint64_t number) try {
    std::byte* const at = data_ + number * part_bytes_;
    const std::uint64_t bytes = std::min(part_bytes_, mapped_bytes_ - number * part_bytes_);
    // Where the system has no such call, registering brings the pages.
    if (const int code = env().populate(at, bytes); code != 0 && code != -EINVAL)
        return {code, "its pages cannot be brought into memory: " + error_text(code) +
                          "; is the file as long as before, and does its disk work?"};
    if (status s = reader_->add(at, bytes); !s.ok()) return s;
    registered_[number] = 1;
    return {};
} catch (...) {
    return host::status_of_exception("");
}

// Is the part the file's as it was mapped? What programs of a mount have stored comes to the file
// first.
int in_place_region::check_file() {
    if (const int code = part_.home->collect_from_programs(); code != 0) return code;
    const std::int64_t size = part_.home->size_bytes();
    if (size < 0) return static_cast<int>(size);
    if (static_cast<std::uint64_t>(size) < part_.offset + part_.bytes) return -ESTALE;
    return end_.has_left() ? -ESTALE : 0;
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
             "the file is shorter than the region now, or was since it was mapped, and the region "
             "has pages that are no longer the file's; close the region and map the file anew");
    } else {
        say_(subject + error_text(code) + "; nothing is lost, and the next " + operation +
             " tries again");
    }
    return code;
}

std::int64_t in_place_region::acquire(const region_part& part, void*) try {
    if (!belongs_here()) return -ECHILD;
    if (!contains(part)) return -EINVAL;
    const std::lock_guard lock(mutex_);
    if (data_ == nullptr) return -EBADF;
    if (const status loss = reader_->lost(); !loss.ok()) return told(loss.code, "acquire");
    return told(check_file(), "acquire");
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t in_place_region::release(const region_part& part, void*) {
    if (!belongs_here()) return -ECHILD;
    if (!contains(part)) return -EINVAL;
    const std::lock_guard lock(mutex_);
    return data_ == nullptr ? -EBADF : 0;
}

int in_place_region::sync() try {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    return data_ == nullptr ? -EBADF : static_cast<int>(told(part_.home->sync(), "sync"));
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t in_place_region::prefer(std::uint64_t offset, std::uint64_t bytes, void*) {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (data_ == nullptr) return -EBADF;
    return offset > part_.bytes || bytes > part_.bytes - offset ? -EINVAL : 0;
}

int in_place_region::close(void*) {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (data_ == nullptr) return -EBADF;
    close_locked();
    return 0;
}

region_traffic in_place_region::traffic() const {
    if (!belongs_here()) return {};
    const std::lock_guard lock(mutex_);
    return traffic_;
}

}  // namespace penstock::region
