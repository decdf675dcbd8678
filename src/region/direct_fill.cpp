#include "region/direct_fill.hpp"

#include <algorithm>

#include "os/file_kind.hpp"

namespace penstock::region {

namespace {

bool is_wanted(const direct_order& order, std::uint64_t fill_bytes) {
    if (order.storage == nullptr || order.mode == direct_mode::off) return false;
    return order.mode == direct_mode::on || fill_bytes >= order.storage->least_fill_bytes();
}

std::uint64_t size_of(host::environment& env, int fd) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(env.size_bytes(fd), 0));
}

}  // namespace

direct_fill::direct_fill(const direct_order& order, host::environment& env, int fd,
                         region_memory& memory, std::uint64_t fill_bytes)
    : order_(order),
      env_(env),
      fd_(fd),
      memory_(memory),
      is_wanted_(is_wanted(order, fill_bytes)),
      size_bytes_(is_wanted_ ? size_of(env, fd) : 0) {}

direct_fill::~direct_fill() {
    if (is_wanted_) memory_.end_direct(*order_.storage);
}

// Tried once: all threads take what the first of them finds.
host::direct_file* direct_fill::file() {
    const std::lock_guard lock(mutex_);
    if (!was_tried_) {
        was_tried_ = true;
        file_ = order_.storage->open(env_, fd_, order_.mode, why_not_);
    }
    return file_.get();
}

// The page in which the file ends is read the ordinary way, with zeros behind its bytes.
const std::byte* direct_fill::read(unsigned worker, const page_list& batch) {
    const std::uint64_t bytes = batch.size() * page_bytes, offset = batch.front() * page_bytes;
    const bool is_run = batch.back() - batch.front() == batch.size() - 1;
    if (!is_wanted_ || !is_run || bytes < least_direct_read_bytes || batch.size() > batch_pages ||
        offset + bytes > size_bytes_)
        return nullptr;
    const bool asks = order_.mode == direct_mode::automatic;
    if (asks && host::is_in_memory(env_, fd_, offset, bytes)) return nullptr;
    host::direct_file* const from = file();
    if (from == nullptr) return nullptr;
    const std::byte* const out = memory_.read_direct(worker, *from, bytes, offset);
    if (out != nullptr) pages_ += batch.size();
    return out;
}

// A failure is said each time, all else once in a process.
std::string direct_fill::news() {
    const std::lock_guard lock(mutex_);
    if (!was_tried_) return {};
    if (file_ != nullptr && !file_->failure().empty())
        return "cuFile did not read it, for " + file_->failure() +
               "; the rest came through host memory, and nothing is missing";
    std::string out;
    if (file_ == nullptr)
        out = "no direct path from storage to the device: " + why_not_ +
              "; large cold reads go through host memory";
    else if (file_->path().is_direct)
        out = "large cold reads go from storage straight to the device: " + file_->path().words;
    else
        out =
            "large reads go by cuFile in compatibility mode, through host memory, since "
            "direct_storage is on: " +
            file_->path().words;
    return order_.storage->is_news(out) ? out : std::string();
}

}  // namespace penstock::region
