// How a runtime has windows: one set for kernels, or on CPU threads one for rows of tables.
#include <bit>
#include <cerrno>

#include "runtime/runtime_state.hpp"

namespace penstock::host {

status runtime_state::build_windows() {
    const std::uint64_t budget_bytes = *settings.window_bytes - settings.tier_bytes * device_count;
    if (has_windows() || budget_bytes != 0)
        asked = std::make_unique<asked_chunks>(settings.max_files);
    // The first device, which ends last, has the memory of the windows of all.
    const runtime_state& first = first_device != nullptr ? *first_device : *this;
    // A device has a set for kernels, one for rows, or in tests both.
    const bool has_rows = !device->is_gpu() && budget_bytes != 0;
    const std::size_t sets = device_count * (has_windows() && has_rows ? 2u : 1u);
    const auto runs = [&](const std::shared_ptr<window_runs>& of_first) {
        return of_first != nullptr
                   ? of_first
                   : std::make_shared<window_runs>(*hooks.env, *device, device_count, budget_bytes);
    };
    const auto rules = [&](const std::shared_ptr<window_runs>& of, window_visits* visits) {
        return window_rules{
            .runs = of, .visits = visits, .sets = sets, .watched = &hooks.shared->watched_files};
    };
    if (has_windows()) {
        ref.view.drawn_places = std::bit_ceil(ref.view.frame_count);
        const std::uint64_t bytes = std::uint64_t{ref.view.drawn_places} * 8;
        ref.view.drawn_pages = static_cast<std::uint64_t*>(device->allocate_device(bytes));
        if (ref.view.drawn_pages == nullptr)
            return {-ENOMEM, "hints which pages are to enter the cache, " + format_size(bytes) +
                                 ", could not be allocated: " + device->shortage() +
                                 "; give less cache_bytes"};
        runs_of_windows = runs(first.runs_of_windows);
        windows = std::make_unique<window_set>(*hooks.env, *device, ref.view, window_chunk_words,
                                               rules(runs_of_windows, nullptr));
    }
    if (!has_rows) return {};
    engine::cache_view& c = windows_of_rows.view;
    c = ref.view;
    c.windows = static_cast<std::uint64_t*>(device->allocate_device(c.file_slots * 8));
    c.window_chunks = static_cast<std::uint64_t*>(device->allocate_device(window_chunk_words * 8));
    if (c.windows == nullptr || c.window_chunks == nullptr)
        return {-ENOMEM, "no memory for the words of windows: " + device->shortage() +
                             "; give window_bytes 0 for none"};
    windows_of_rows.runs = runs(first.windows_of_rows.runs);
    windows_of_rows.set =
        std::make_unique<window_set>(*hooks.env, *device, c, window_chunk_words,
                                     rules(windows_of_rows.runs, &windows_of_rows.visits));
    return {};
}

namespace {

// One more descriptor of an open file, closed at the end whatever comes between. Negative: a
// negative errno.
class held_file {
public:
    held_file(const runtime_state& state, int fd)
        : state_(state), fd_(state.device->duplicate(state.ref, fd)) {}
    ~held_file() {
        if (fd_ >= 0) state_.device->close(state_.ref, fd_);
    }
    held_file(const held_file&) = delete;
    held_file& operator=(const held_file&) = delete;
    [[nodiscard]] int fd() const { return fd_; }

private:
    const runtime_state& state_;
    const int fd_;
};

// Calls open(file, note) for the file of an open descriptor. Returns its result, or a negative
// errno.
template <typename Open>
std::int64_t with_window_file(const runtime_state& state, int fd, const Open& open) {
    // Held open until the window is in place, so that the file's slot cannot go to another
    // meanwhile.
    const held_file held(state, fd);
    if (held.fd() < 0) return held.fd();
    window_file file{engine::descriptor_slot(state.ref.view, fd), engine::descriptor_generation(fd),
                     -1, 0};
    std::shared_ptr<shared_handle> handle;
    std::int64_t result =
        state.files->handle_of(file.slot, file.generation, handle, file.size_bytes);
    if (result == 0) {
        file.fd = handle->fd();
        state.asked->watch(file.slot, file.generation);
        std::string note;
        result = open(file, note);
        if (!note.empty()) state.say("no windows: " + note);
    }
    return result;
}

}  // namespace

std::int64_t runtime_state::open_windows(window_set& set, int fd, std::uint64_t offset,
                                         std::uint64_t bytes, const void* owner) {
    return with_window_file(*this, fd, [&](const window_file& file, std::string& note) {
        return set.open(file, offset, bytes, note, owner);
    });
}

std::int64_t runtime_state::grow_windows(window_set& set,
                                         const std::vector<asked_chunks::chunk>& chunks,
                                         const void* owner, bool completes) {
    std::int64_t sum = 0, first_error = 0;
    bool any = chunks.empty();
    for (std::size_t i = 0; i < chunks.size();) {
        const asked_chunks::chunk& first = chunks[i];
        std::vector<std::uint64_t> numbers, later;
        for (; i < chunks.size() && chunks[i].slot == first.slot &&
               chunks[i].generation == first.generation;
             ++i)
            numbers.push_back(chunks[i].number);
        const std::int64_t taken = with_window_file(
            *this, engine::make_descriptor(first.slot, first.generation),
            [&](const window_file& file, std::string& note) {
                return set.open_chunks(file, numbers, note, owner, completes ? &later : nullptr);
            });
        for (const std::uint64_t number : later)
            asked->note(first.slot, first.generation, number * engine::window_chunk_bytes, 1);
        if (taken == -EBADF) any = true;  // it is closed, and was asked for before
        any = any || taken >= 0;
        if (taken > 0) sum += taken;
        if (taken < 0 && first_error == 0) first_error = taken;
    }
    return any ? sum : first_error;
}

}  // namespace penstock::host
