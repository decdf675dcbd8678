// Maps a file in pieces: opens it, settles the options, and makes the memory.
#include "penstock/pieces.hpp"

#include <algorithm>
#include <cerrno>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"
#include "region/piece_set.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t piece_step = std::uint64_t{2} << 20;

status no_pieces(int code, const std::string& path, const std::string& reason) {
    return {code, "pieces of '" + path + "': " + reason};
}

status settle_options(const std::string& path, const piece_options& settings, runtime& rt) {
    if (settings.device >= rt.device_count())
        return no_pieces(-EINVAL, path,
                         "device: " + std::to_string(settings.device) + " of " +
                             std::to_string(rt.device_count()) + "; give a smaller number");
    if (settings.piece_bytes == 0 || settings.piece_bytes % piece_step != 0)
        return no_pieces(-EINVAL, path,
                         "piece_bytes: " + std::to_string(settings.piece_bytes) +
                             " is no multiple of 2 MiB; give one, such as 67108864");
    return {};
}

region::piece_shape shape_of(std::uint64_t size_bytes, const piece_options& settings) {
    region::piece_shape out;
    const std::uint64_t whole = (size_bytes + piece_step - 1) / piece_step * piece_step;
    out.piece_bytes = std::min(settings.piece_bytes, whole);
    out.pieces = (size_bytes + out.piece_bytes - 1) / out.piece_bytes;
    out.device_bytes = settings.device_bytes.value_or(UINT64_MAX);
    out.host_places = std::min(settings.host_bytes / out.piece_bytes, out.pieces);
    out.poison = settings.poison_absent;
    return out;
}

}  // namespace

file_pieces::file_pieces(std::unique_ptr<region::piece_set> mapped) : mapped_(std::move(mapped)) {}
file_pieces::~file_pieces() {
    if (!mapped_->belongs_here()) host::abandon(std::move(mapped_));
}
const void* file_pieces::data() const { return mapped_->data(); }
std::uint64_t file_pieces::size_bytes() const { return mapped_->size_bytes(); }
std::uint64_t file_pieces::piece_bytes() const { return mapped_->piece_bytes(); }
std::int64_t file_pieces::expect(std::span<const byte_range> ranges, device_stream stream) {
    return mapped_->expect(ranges, stream);
}
int file_pieces::done(std::span<const byte_range> ranges, device_stream stream) {
    return mapped_->done(ranges, stream);
}
bool file_pieces::is_resident(std::span<const byte_range> ranges) const {
    return mapped_->is_resident(ranges);
}
status file_pieces::verify(std::span<const byte_range> ranges) const {
    return mapped_->verify(ranges);
}
piece_traffic file_pieces::traffic() const { return mapped_->traffic(); }
int file_pieces::close() { return mapped_->close(); }

status map_pieces(runtime& rt, const std::string& path, const piece_options& settings,
                  std::unique_ptr<file_pieces>& out) try {
    out.reset();
    if (rt.process_code() != 0)
        return no_pieces(
            -ECHILD, path,
            "the runtime belongs to the parent of this process; make one of the child's "
            "own after fork()");
    if (status s = settle_options(path, settings, rt); !s) return s;
    const host::runtime_state& state = rt.state(settings.device);
    host::environment& env = *state.hooks.env;
    host::file_facts facts;
    const int fd = host::open_regular(env, path, facts);
    if (fd < 0) return no_pieces(fd, path, host::why_not_opened(fd, path, false));
    const auto closes = [&env](const int* opened) { env.close(*opened); };
    std::unique_ptr<const int, decltype(closes)> guard(&fd, closes);
    if (facts.identity.size_bytes == 0)
        return no_pieces(-EINVAL, path, "the file is empty; there is nothing to map");
    const region::piece_shape shape = shape_of(facts.identity.size_bytes, settings);
    status why;
    auto memory = state.device->is_gpu()
                      ? region::make_gpu_pieces(state.settings.device, shape, why)
                      : region::make_cpu_pieces(shape, why);
    if (memory == nullptr)
        return no_pieces(
            why.code, path,
            why.message + (why.code == -ENOMEM
                               ? "; give smaller piece_bytes, more device_bytes, or less "
                                 "host_bytes"
                               : ""));
    const auto say = [log = state.log](const std::string& line) { log->say(line); };
    auto mapped = std::make_unique<region::piece_set>(env, *state.hooks.shared, fd, facts,
                                                      std::move(memory), shape, path, say);
    static_cast<void>(guard.release());
    out = std::make_unique<file_pieces>(std::move(mapped));
    return {};
} catch (...) {
    return host::status_of_exception("pieces of '" + path + "': ");
}

}  // namespace penstock
