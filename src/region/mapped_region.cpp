#include "region/mapped_region.hpp"

#include <cerrno>
#include <new>

#include "os/exceptions.hpp"
#include "region/file_answer.hpp"

namespace penstock::region {

namespace {

constexpr const char* busy_stream =
    "the stream is being captured, or it is the legacy stream and another one is; end the capture "
    "first, or give a stream";

bool is_gone(std::int64_t code) { return code == -EIO || code == -ENODEV; }

std::string cure_of_a_move(std::int64_t code) {
    if (is_gone(code)) return "; its memory is not to be used any more, close the region";
    if (code == -EBUSY)
        return "; the stream is being captured, or it is the legacy stream and another one is: end "
               "the capture first";
    return "; the host has no room for a piece more: all is where it was, or has been moved as far "
           "as that went";
}

}  // namespace

mapped_region::mapped_region(std::shared_ptr<shared_home> home,
                             std::unique_ptr<region_memory> memory, std::string path,
                             std::function<void(const std::string&)> say,
                             std::chrono::milliseconds request_wait)
    : home_(std::move(home)),
      memory_(std::move(memory)),
      path_(std::move(path)),
      say_(std::move(say)),
      requests_(
          [this](int& code) -> std::unique_ptr<stream_turns> {
              const std::optional<int> gpu = memory_->gpu();
              return gpu ? make_gpu_turns(*gpu, code) : std::make_unique<stream_turns>();
          },
          request_wait, [this] { say_late(); }) {}

void mapped_region::say_late() const {
    say_(
        "region of '" + path_ +
        "', a request: its stream waited for it as long as options::request_wait_ms says, and goes "
        "on; kernels behind it may see some of its pages and not others. A program that loads a "
        "kernel, or frees memory of the device, behind a request makes the driver hold the request "
        "up: load kernels before (cudaFuncGetAttributes, or CUDA_MODULE_LOADING=EAGER)");
}

// Kernels that use it have ended, so where the legacy stream cannot be used, none has to be.
mapped_region::~mapped_region() {
    requests_.refuse();
    std::lock_guard lock(mutex_);
    if (!open_) return;
    try {
        close_locked(memory_->begin(nullptr) == -EBUSY ? memory_->own_stream() : nullptr);
        if (open_) close_locked(memory_->own_stream());  // a capture has begun meanwhile
    } catch (...) {
        say_("region of '" + path_ +
             "', close: the host has no memory left; changes that did not come to the file are "
             "lost");
    }
    if (open_) leave();
}

// Other regions of the file look at the memory of those that have not left. The file is not kept
// open for a tensor that has the memory still.
void mapped_region::leave() {
    home_->leave(place_);
    home_.reset();
    open_ = false;
}

int mapped_region::join(const page_range& pages, std::uint64_t end_bytes,
                        const region_options& settings, bool writable, const direct_order& direct) {
    const int code = home_->join(
        {memory_.get(), pages, end_bytes, settings.outside_writers, settings.promote_hot, direct},
        place_);
    if (code != 0) return code;
    promote_hot_ = settings.promote_hot;
    open_ = true;
    writable_ = writable;
    first_page_ = pages.begin;
    size_bytes_ = end_bytes - pages.begin * page_bytes;
    traffic_.bytes_on_device = memory_->bytes_on_device();
    if (const std::string why = home_->meet(place_); !why.empty())
        say_("region of '" + path_ +
             "': pages are not copied between it and another region of the "
             "file, because " +
             why + "; they come from the file");
    return 0;
}

// An error is said in the log once it has happened, for the caller has the code only.
std::int64_t mapped_region::told(std::int64_t code, const char* operation) {
    if (code >= 0 || loss_said_) return code;
    const std::string subject = "region of '" + path_ + "', " + operation + ": ";
    const status loss = memory_->lost();
    if (!loss.ok()) {
        loss_said_ = true;
        const std::uint64_t first = first_page_ * page_bytes;
        say_(subject + loss.message +
             (writable_ ? "; what kernels changed in bytes " + std::to_string(first) + " to " +
                              std::to_string(first + size_bytes_ - 1) +
                              " of the file since the last release is lost; close the region, and "
                              "write it once more"
                        : "; close the region, and map it anew in a runtime that is whole"));
        return code;
    }
    const std::string cause =
        code == -ESTALE ? "the file is shorter than the region now" : error_text(code);
    std::string cure = "; nothing is lost, and the next " + std::string(operation) + " tries again";
    if (std::string(operation) == "close")
        cure = "; changes that did not come to the file are lost, release() first to keep them";
    else if (std::string(operation) == "sync") cure = cure_of_a_sync;
    else if (code == -ESTALE) cure = "; close the region and map what is left";
    say_(subject + (code == -EBUSY ? std::string(busy_stream) : cause + cure));
    return code;
}

// That it failed is said, and no error of an acquire that has brought all.
std::int64_t mapped_region::promote(void* stream) {
    const std::int64_t came = home_->promote(place_, stream);
    if (came > 0) traffic_.bytes_promoted += static_cast<std::uint64_t>(came);
    if (came == -ENOMEM) promote_hot_ = false;
    if (came < 0 && came != -EBUSY)
        say_("region of '" + path_ + "', promotion of what is hot: " + error_text(came) +
             cure_of_a_move(came));
    return is_gone(came) ? came : 0;
}

int mapped_region::settle(const region_part& part, page_range& out) const {
    if (!contains(part)) return -EINVAL;
    const std::uint64_t bytes = part.bytes.value_or(size_bytes_ - part.offset);
    out.begin = first_page_ + part.offset / page_bytes;
    out.end =
        bytes == 0 ? out.begin : first_page_ + (part.offset + bytes + page_bytes - 1) / page_bytes;
    return 0;
}

std::int64_t mapped_region::acquire_now(const page_range& pages, std::optional<void*> stream) try {
    std::lock_guard lock(mutex_);
    if (!open_) return -EBADF;
    if (const int code = file_answer(home_->acquire(place_, pages)); code != 0)
        return told(code, "acquire");
    const fetched_pages came =
        home_->fetch(place_, pages, stream ? *stream : memory_->own_stream());
    if (came.code == 0 && came.neighbour_code != 0 && !neighbour_said_) {
        neighbour_said_ = true;
        say_("region of '" + path_ + "', acquire: pages could not be copied from another region (" +
             error_text(came.neighbour_code) + "), and come from the file");
    }
    if (!came.direct_news.empty()) say_("region of '" + path_ + "': " + came.direct_news);
    if (came.code != 0) return told(came.code, "acquire");
    traffic_.pages_fetched += came.pages;
    traffic_.pages_from_neighbours += came.from_neighbours;
    traffic_.pages_from_caches += came.from_caches;
    traffic_.pages_from_buffers += came.from_buffers;
    traffic_.pages_direct += came.direct;
    // Pieces do not change places beside kernels, which a request does not wait for.
    if (promote_hot_ && stream)
        if (const std::int64_t code = promote(*stream); code < 0) return code;
    return static_cast<std::int64_t>(came.pages);
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t mapped_region::acquire(const region_part& part, void* stream) {
    if (!belongs_here()) return -ECHILD;
    page_range pages;
    if (const int code = settle(part, pages); code != 0) return code;
    requests_.drain();
    return acquire_now(pages, stream);
}

std::int64_t mapped_region::release_locked(const page_range& pages, void* stream,
                                           const char* operation) {
    if (!writable_) return 0;
    page_list changed;
    if (const int code = memory_->changed_pages(stream, pages.begin - first_page_,
                                                pages.end - first_page_, changed);
        code != 0)
        return told(code, operation);
    for (std::uint64_t& page : changed) page += first_page_;
    const std::int64_t written = file_answer(home_->release(place_, pages, changed));
    if (written < 0) return told(written, operation);
    traffic_.pages_released += changed.size();
    traffic_.bytes_written += static_cast<std::uint64_t>(written);
    return static_cast<std::int64_t>(changed.size());
}

std::int64_t mapped_region::release_now(const page_range& pages, std::optional<void*> stream) try {
    std::lock_guard lock(mutex_);
    if (!open_) return -EBADF;
    return release_locked(pages, stream ? *stream : memory_->own_stream(), "release");
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t mapped_region::release(const region_part& part, void* stream) {
    if (!belongs_here()) return -ECHILD;
    page_range pages;
    if (const int code = settle(part, pages); code != 0) return code;
    requests_.drain();
    return release_now(pages, stream);
}

std::shared_ptr<request_end> mapped_region::acquire_async(const region_part& part, void* stream) {
    if (!belongs_here()) return ended(-ECHILD);
    page_range pages;
    if (const int code = settle(part, pages); code != 0) return ended(code);
    return requests_.add(stream, [this, pages] { return acquire_now(pages, std::nullopt); });
}

std::shared_ptr<request_end> mapped_region::release_async(const region_part& part, void* stream) {
    if (!belongs_here()) return ended(-ECHILD);
    page_range pages;
    if (const int code = settle(part, pages); code != 0) return ended(code);
    return requests_.add(stream, [this, pages] { return release_now(pages, std::nullopt); });
}

int mapped_region::sync() try {
    if (!belongs_here()) return -ECHILD;
    requests_.drain();
    std::lock_guard lock(mutex_);
    return open_ ? static_cast<int>(told(file_answer(home_->sync()), "sync")) : -EBADF;
} catch (...) {
    return host::status_of_exception("").code;
}

std::int64_t mapped_region::prefer(std::uint64_t offset, std::uint64_t bytes, void* stream) try {
    if (!belongs_here()) return -ECHILD;
    requests_.drain();
    std::lock_guard lock(mutex_);
    if (!open_) return -EBADF;
    if (offset > size_bytes_ || bytes > size_bytes_ - offset) return -EINVAL;
    const std::int64_t near = home_->prefer(place_, offset, offset + bytes, stream);
    if (near < 0)
        say_("region of '" + path_ + "', prefer: " + error_text(near) + cure_of_a_move(near));
    return near;
} catch (...) {
    return host::status_of_exception("").code;
}

// -EBUSY leaves it open: the stream cannot be used now.
int mapped_region::close_locked(void* stream) {
    const std::int64_t released = release_locked(all_pages(), stream, "close");
    if (released == -EBUSY) return -EBUSY;
    leave();
    return released < 0 ? static_cast<int>(released) : 0;
}

int mapped_region::end(void* stream, bool keeps_memory) try {
    if (!belongs_here()) return -ECHILD;
    requests_.refuse();
    std::lock_guard lock(mutex_);
    int code = -EBADF;
    try {
        if (open_) code = close_locked(stream);
    } catch (...) {
        code = host::status_of_exception("").code;
    }
    if (open_) requests_.allow();
    else if (!keeps_memory) memory_.reset();
    return code;
} catch (...) {
    return host::status_of_exception("").code;
}

int mapped_region::close(void* stream) { return end(stream, false); }
int mapped_region::detach(void* stream) { return end(stream, true); }

region_traffic mapped_region::traffic() const {
    if (!belongs_here()) return {};
    std::lock_guard lock(mutex_);
    return traffic_;
}

}  // namespace penstock::region

namespace penstock {

file_region::file_region(std::unique_ptr<region::region_body> body) : body_(std::move(body)) {}
file_region::~file_region() {
    if (!body_->belongs_here()) host::abandon(std::move(body_));
}
void* file_region::data() const { return body_->data(); }
std::uint64_t file_region::size_bytes() const { return body_->size_bytes(); }
std::int64_t file_region::acquire(device_stream stream) { return body_->acquire({}, stream); }
std::int64_t file_region::release(device_stream stream) { return body_->release({}, stream); }
std::int64_t file_region::acquire(const region_part& part, device_stream stream) {
    return body_->acquire(part, stream);
}
std::int64_t file_region::release(const region_part& part, device_stream stream) {
    return body_->release(part, stream);
}
region_request file_region::acquire_async(const region_part& part, device_stream stream) {
    return region_request(body_->acquire_async(part, stream));
}
region_request file_region::release_async(const region_part& part, device_stream stream) {
    return region_request(body_->release_async(part, stream));
}

region_request::region_request(std::shared_ptr<region::request_end> end) : end_(std::move(end)) {}
bool region_request::is_done() const { return end_->is_done(); }
std::int64_t region_request::wait() const { return end_->wait(); }

int file_region::sync() { return body_->sync(); }
std::int64_t file_region::prefer(std::uint64_t offset, std::uint64_t bytes, device_stream stream) {
    return body_->prefer(offset, bytes, stream);
}
int file_region::close(device_stream stream) { return body_->close(stream); }
int file_region::detach(device_stream stream) { return body_->detach(stream); }
region_traffic file_region::traffic() const { return body_->traffic(); }
region_placement file_region::placement() const { return body_->placement(); }
const std::string& file_region::placement_reason() const { return body_->placement_reason(); }

}  // namespace penstock
