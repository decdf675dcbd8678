#include "region/mapped_region.hpp"

#include <cerrno>
#include <cstdio>
#include <new>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::region {

namespace {

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
                             std::function<void(const std::string&)> say)
    : home_(std::move(home)),
      memory_(std::move(memory)),
      path_(std::move(path)),
      say_(std::move(say)),
      requests_([this](int& code) -> std::unique_ptr<stream_turns> {
          const std::optional<int> gpu = memory_->gpu();
          return gpu ? make_gpu_turns(*gpu, code) : std::make_unique<stream_turns>();
      }) {}

// Kernels that use it have ended, so where the legacy stream cannot be used, none has to be.
mapped_region::~mapped_region() {
    requests_.refuse();
    std::lock_guard lock(mutex_);
    if (!open_) return;
    try {
        close_locked(memory_->begin(nullptr) == -EBUSY ? memory_->own_stream() : nullptr);
    } catch (...) {
        open_ = false;
        home_->leave(place_);
        say_("region of '" + path_ +
             "', close: the host has no memory left; changes that did not come to the file are "
             "lost");
    }
}

int mapped_region::join(const page_range& pages, std::uint64_t end_bytes,
                        const region_options& settings, bool writable) {
    const int code = home_->join(
        {memory_.get(), pages, end_bytes, settings.outside_writers, settings.promote_hot}, place_);
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
    std::string cure =
        error_text(code) + "; nothing is lost, and the next " + operation + " tries again";
    if (code == -ESTALE)
        cure = "the file is shorter than the region now; close the region and map what is left";
    else if (code == -EBUSY)
        cure =
            "the stream is being captured, or it is the legacy stream and another one is; end the "
            "capture first, or give a stream";
    else if (std::string(operation) == "close")
        cure = error_text(code) +
               "; changes that did not come to the file are lost, release() first to keep them";
    say_(subject + cure);
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
    if (part.offset > size_bytes_) return -EINVAL;
    const std::uint64_t bytes = part.bytes.value_or(size_bytes_ - part.offset);
    if (bytes > size_bytes_ - part.offset) return -EINVAL;
    const std::uint64_t end = part.offset + bytes;
    out.begin = first_page_ + part.offset / page_bytes;
    out.end = bytes == 0 ? out.begin : first_page_ + (end + page_bytes - 1) / page_bytes;
    return 0;
}

std::int64_t mapped_region::acquire_now(const page_range& pages, std::optional<void*> stream) try {
    std::lock_guard lock(mutex_);
    if (!open_) return -EBADF;
    if (const int code = home_->acquire(place_, pages); code != 0) return told(code, "acquire");
    const fetched_pages came =
        home_->fetch(place_, pages, stream ? *stream : memory_->own_stream());
    if (came.code == 0 && came.neighbour_code != 0 && !neighbour_said_) {
        neighbour_said_ = true;
        say_("region of '" + path_ + "', acquire: pages could not be copied from another region (" +
             error_text(came.neighbour_code) + "), and come from the file");
    }
    if (came.code != 0) return told(came.code, "acquire");
    traffic_.pages_fetched += came.pages;
    traffic_.pages_from_neighbours += came.from_neighbours;
    traffic_.pages_from_caches += came.from_caches;
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
    const std::int64_t written = home_->release(place_, pages, changed);
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

namespace {

std::shared_ptr<request_end> ended(std::int64_t result) {
    auto out = std::make_shared<request_end>();
    out->set(result);
    return out;
}

}  // namespace

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
    return open_ ? static_cast<int>(told(home_->sync(), "sync")) : -EBADF;
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

// -EBUSY leaves it open.
int mapped_region::close_locked(void* stream) {
    const std::int64_t released = release_locked(all_pages(), stream, "close");
    if (released == -EBUSY) return -EBUSY;
    open_ = false;
    home_->leave(place_);
    memory_.reset();
    return released < 0 ? static_cast<int>(released) : 0;
}

int mapped_region::close(void* stream) try {
    if (!belongs_here()) return -ECHILD;
    requests_.refuse();
    std::lock_guard lock(mutex_);
    const int code = open_ ? close_locked(stream) : -EBADF;
    if (open_) requests_.allow();
    return code;
} catch (...) {
    return host::status_of_exception("").code;
}

region_traffic mapped_region::traffic() const {
    if (!belongs_here()) return {};
    std::lock_guard lock(mutex_);
    return traffic_;
}

}  // namespace penstock::region

namespace penstock {

namespace {

using region::page_bytes;

status refused(int code, const std::string& path, const std::string& reason) {
    return {code, "region of '" + path + "': " + reason};
}

// The cause and the cure. What kind of file it is says more than the code.
std::string why_not_opened(int code, const std::string& path, bool writable) {
    struct stat facts {};
    host::file_kind kind{};
    if ((code == -EOPNOTSUPP || code == -EISDIR) && host::look_at_file(path, facts, kind) == 0 &&
        kind != host::file_kind::regular)
        return host::why_not_by_size(kind);
    return error_text(code) + (writable ? "; name a file that you may read and write"
                                        : "; name a file that you may read");
}

// The part of the file that is meant: `bytes` 0 for all up to its end.
status settle_range(const std::string& path, std::uint64_t size, std::uint64_t offset,
                    std::uint64_t& bytes) {
    if (offset % page_bytes != 0)
        return refused(-EINVAL, path,
                       "offset " + std::to_string(offset) + " is no multiple of " +
                           std::to_string(page_bytes));
    if (size == 0)
        return refused(-EINVAL, path,
                       "the file is empty; a region needs bytes that are there, so make it as long "
                       "as it is to be (truncate)");
    if (bytes == 0 && offset < size) bytes = size - offset;
    if (offset < size && bytes <= size - offset) return {};
    return refused(-EINVAL, path,
                   std::to_string(bytes) + " bytes from " + std::to_string(offset) +
                       " on do not lie in a file of " + std::to_string(size) +
                       " bytes; map what is there, or make the file longer first (truncate)");
}

}  // namespace

file_region::file_region(std::unique_ptr<region::mapped_region> mapped)
    : mapped_(std::move(mapped)) {}
file_region::~file_region() {
    if (!mapped_->belongs_here()) host::abandon(std::move(mapped_));
}
void* file_region::data() const { return mapped_->data(); }
std::uint64_t file_region::size_bytes() const { return mapped_->size_bytes(); }
std::int64_t file_region::acquire(device_stream stream) { return mapped_->acquire({}, stream); }
std::int64_t file_region::release(device_stream stream) { return mapped_->release({}, stream); }
std::int64_t file_region::acquire(const region_part& part, device_stream stream) {
    return mapped_->acquire(part, stream);
}
std::int64_t file_region::release(const region_part& part, device_stream stream) {
    return mapped_->release(part, stream);
}
region_request file_region::acquire_async(const region_part& part, device_stream stream) {
    return region_request(mapped_->acquire_async(part, stream));
}
region_request file_region::release_async(const region_part& part, device_stream stream) {
    return region_request(mapped_->release_async(part, stream));
}

region_request::region_request(std::shared_ptr<region::request_end> end) : end_(std::move(end)) {}
bool region_request::is_done() const { return end_->is_done(); }
std::int64_t region_request::wait() const { return end_->wait(); }

int file_region::sync() { return mapped_->sync(); }
std::int64_t file_region::prefer(std::uint64_t offset, std::uint64_t bytes, device_stream stream) {
    return mapped_->prefer(offset, bytes, stream);
}
int file_region::close(device_stream stream) { return mapped_->close(stream); }
region_traffic file_region::traffic() const { return mapped_->traffic(); }

status map_region(runtime& rt, const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                  protection access, const region_options& settings,
                  std::unique_ptr<file_region>& out) try {
    out.reset();
    if (rt.process_code() != 0)
        return refused(-ECHILD, path,
                       "the runtime belongs to the parent of this process; make one of the child's "
                       "own after fork()");
    if (settings.device >= rt.device_count())
        return refused(-EINVAL, path,
                       "device " + std::to_string(settings.device) +
                           " of a region is not there, for the runtime has " +
                           std::to_string(rt.device_count()) + "; give one from 0 on");
    const host::runtime_state& state = rt.state(settings.device);
    const bool writable = access == protection::read_write;
    if (writable && !state.settings.writable)
        return refused(
            -EROFS, path,
            "the runtime only reads; set options::writable (PENSTOCK_WRITABLE) to change files");
    std::shared_ptr<region::shared_home> home;
    auto& files = region::shared_files::of(*state.hooks.shared);
    if (const int code = files.open_home(*state.hooks.env, path, writable, home); code != 0)
        return refused(code, path, why_not_opened(code, path, writable));
    const std::int64_t size = home->size_bytes();
    if (size < 0) return refused(static_cast<int>(size), path, error_text(size));
    if (status s = settle_range(path, static_cast<std::uint64_t>(size), offset, bytes); !s)
        return s;
    const region::page_range pages{offset / page_bytes,
                                   (offset + bytes + page_bytes - 1) / page_bytes};
    const region::memory_shape shape{pages.end - pages.begin, writable,
                                     settings.device_bytes.value_or(UINT64_MAX)};
    status why;
    auto memory = state.device->is_gpu()
                      ? region::make_gpu_memory(state.settings.device, shape, why)
                      : region::make_cpu_memory(shape, why);
    if (memory == nullptr)
        return refused(
            why.code, path,
            why.message + (why.code == -ENOMEM ? "; map a smaller part of the file" : ""));
    const auto say = state.settings.log ? state.settings.log : [](const std::string& line) {
        std::fprintf(stderr, "penstock: %s\n", line.c_str());
    };
    auto mapped = std::make_unique<region::mapped_region>(home, std::move(memory), path, say);
    if (const int code = mapped->join(pages, offset + bytes, settings, writable); code != 0)
        return refused(code, path,
                       "as many regions share the file as can, " +
                           std::to_string(region::most_devices) + "; close one");
    if (const std::int64_t code = mapped->acquire({}, nullptr); code < 0)
        return refused(static_cast<int>(code), path, error_text(code));
    out = std::make_unique<file_region>(std::move(mapped));
    return {};
} catch (...) {
    return host::status_of_exception("region of '" + path + "': ");
}

}  // namespace penstock
