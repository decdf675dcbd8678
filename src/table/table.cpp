// The host's half of a table: its files, its runs in device memory, and its note.
#include "penstock/table.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "os/env.hpp"
#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/runtime.hpp"
#include "runtime/runtime_state.hpp"
#include "table/cpu_rows.hpp"
#include "table/table_windows.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t least_page = 512, most_page = std::uint64_t{2} << 20,
                        most_table_bytes = std::uint64_t{1} << 30;

// In a child of fork().
std::string of_the_parent(int code) {
    return "the runtime belongs to the parent of this process: " + error_text(code);
}

std::uint64_t stride_of(const table_layout& layout) {
    return layout.stride_bytes != 0 ? layout.stride_bytes : layout.row_bytes;
}

// Where the last row of a piece ends. Nothing, if no file can be that long.
std::optional<std::uint64_t> end_of(const table_layout& layout, const table_piece& piece) {
    std::uint64_t end = 0;
    if (piece.rows == 0 || __builtin_mul_overflow(piece.rows - 1, stride_of(layout), &end) ||
        __builtin_add_overflow(end, layout.row_bytes, &end) ||
        __builtin_add_overflow(end, piece.first_byte, &end) || end > INT64_MAX)
        return std::nullopt;
    return end;
}

// Has another file the name by now? The runtime knows files that it has open by their names, and
// the layout may be of the other one. A name that is gone tells nothing.
bool names_another(host::environment& env, const std::string& path, const file_stat& opened) {
    if (!path.starts_with('/')) return false;
    const int handle = env.find(-1, path);
    if (handle < 0) return false;
    host::file_facts now;
    const int code = env.facts(handle, now);
    env.close(handle);
    return code == 0 && now.identity.inode != opened.inode;
}

status wrong_piece(const table_piece& piece, const std::string& why) {
    return {-EINVAL, "'" + piece.path + "': " + why};
}

}  // namespace

// What a table has on one device.
struct table::on_device {
    on_device(runtime& of, std::uint32_t at, const table_layout& rows)
        : rt(of), device(at), layout(rows) {}
    ~on_device() {
        windows.reset();
        // In a child of fork() a thread of the parent may have the lock for ever.
        if (room.words != nullptr && state().owner.here()) state().tables.give(room);
    }
    on_device(const on_device&) = delete;
    on_device& operator=(const on_device&) = delete;

    [[nodiscard]] host::runtime_state& state() const { return rt.state(device); }
    status check_sizes() const;
    status place_runs();
    void watch_rows();
    [[nodiscard]] bool has_own_note(const row_options& settings) const {
        return settings.own_note != nullptr && !state().device->is_gpu();
    }
    [[nodiscard]] int begin(std::uint64_t count, const void* numbers, const void* memory,
                            const row_options& settings) const;
    int run(host::table_verb verb, engine::number_list list, std::uint64_t count, void* memory,
            const row_options& settings);
    void run_on_cpu(const host::table_job& job);
    void run_noting(host::table_job& job, status* own_note);
    [[nodiscard]] std::string text_of(const engine::table_note& note) const;
    status check();
    std::int64_t grow_windows();

    runtime& rt;
    const std::uint32_t device;
    const table_layout& layout;
    table_ref ref{};
    std::vector<int> fds;  // of the file of each piece
    host::table_room::share room{};
    std::unique_ptr<host::table_windows> windows;  // cpu, unless writable
    std::mutex note_mutex;                         // a note is taken by one caller
};

struct table::parts {
    explicit parts(runtime& of) : rt(of) {}
    ~parts() { end(); }
    parts(const parts&) = delete;
    parts& operator=(const parts&) = delete;

    status open_files(const table_options& settings);
    status place();
    int end();
    [[nodiscard]] std::uint32_t device_of(const row_options& settings) const;
    int run(host::table_verb verb, engine::number_list list, std::uint64_t count, void* memory,
            const row_options& settings);

    runtime& rt;
    table_layout layout;
    std::vector<shared_file> files;      // distinct
    std::vector<std::uint32_t> file_of;  // of each piece: which of them
    std::uint32_t lacking = 0;           // the first that end() left without some of its bytes
    bool writable = false;
    std::vector<std::unique_ptr<on_device>> devices;
};

options options_for(const table_layout& layout, const options& base) {
    options out = base;
    const std::uint64_t stride = std::clamp(stride_of(layout), least_page, most_page);
    out.page_bytes = std::bit_ceil(stride);
    // A number of frames that page words have room for.
    while (out.page_bytes < most_page &&
           std::max(out.cache_bytes.value_or(0), out.tier_bytes) / out.page_bytes >=
               engine::max_frames)
        out.page_bytes *= 2;
    // Memory of the caller has the size that it has.
    if (out.cache_bytes && out.cache_memory == nullptr)
        out.cache_bytes = std::max(*out.cache_bytes, 8 * out.page_bytes);
    if (out.tier_bytes != 0) out.tier_bytes = std::max(out.tier_bytes, 8 * out.page_bytes);
    std::map<std::string, std::uint64_t> ends;  // of the part of each file that has rows
    for (const table_piece& piece : layout.pieces) {
        std::uint64_t& end = ends[piece.path];
        end = std::max(end, end_of(layout, piece).value_or(0));
    }
    // A file whose table is more than half of all has one of two levels, which costs a trip more.
    std::uint64_t words = 0, most_words = 0;
    for (const auto& [path, end] : ends) {
        words += end / out.page_bytes + 1;
        most_words = std::max(most_words, end / out.page_bytes + 1);
    }
    const std::uint64_t wanted = 8 * std::max(words / 4 * 5, 2 * most_words);
    out.table_bytes = std::max(out.table_bytes, std::min(wanted, most_table_bytes));
    return out;
}

status table::parts::open_files(const table_options& settings) {
    writable = settings.writable;
    if (layout.row_bytes == 0 || layout.pieces.empty())
        return {-EINVAL, "a table needs rows of at least one byte; describe() gives such a layout"};
    if (stride_of(layout) < layout.row_bytes)
        return {-EINVAL, "stride_bytes: " + std::to_string(layout.stride_bytes) +
                             " is less than the row's " + std::to_string(layout.row_bytes) +
                             "; give at least as much, or 0"};
    std::map<std::string, std::uint32_t> known;
    for (const table_piece& piece : layout.pieces) {
        const auto [place, is_new] =
            known.emplace(piece.path, static_cast<std::uint32_t>(files.size()));
        if (is_new) {
            const shared_file file =
                rt.open_everywhere(piece.path, writable ? open_read_write : open_read);
            if (const int code = file.code(); code != 0)
                return {code, "'" + piece.path + "': " + host::error_and_cure(code) +
                                  (code == -EROFS
                                       ? "; a writable table needs options::writable (in Python "
                                         "Runtime(writable=True))"
                                       : "")};
            files.push_back(file);
        }
        file_of.push_back(place->second);
    }
    return {};
}

// The file may have become shorter while one device after the other opened it.
status table::on_device::check_sizes() const {
    for (std::size_t i = 0; i < fds.size(); ++i) {
        const table_piece& piece = layout.pieces[i];
        file_stat facts{};
        if (const int code = state().device->stat(state().ref, fds[i], &facts); code != 0)
            return {code, "'" + piece.path + "': " + error_text(code)};
        const bool is_new = i == 0 || fds[i] != fds[i - 1];
        if (is_new && device == 0 && names_another(*state().hooks.env, piece.path, facts))
            return {-ESTALE, "'" + piece.path +
                                 "': another file has this name by now, and the runtime has the "
                                 "one before open; close what has that open, or use another "
                                 "runtime"};
        const auto end = end_of(layout, piece);
        if (!end || *end > facts.size_bytes)
            return wrong_piece(
                piece, std::to_string(piece.rows) + " rows of " + std::to_string(layout.row_bytes) +
                           " bytes from byte " + std::to_string(piece.first_byte) +
                           " on do not lie in the " + std::to_string(facts.size_bytes) +
                           " bytes that the file had when the runtime opened it; close what has it "
                           "open there, or use another runtime");
    }
    return {};
}

status table::parts::place() {
    for (std::uint32_t i = 0; i < rt.device_count(); ++i) {
        devices.push_back(std::make_unique<on_device>(rt, i, layout));
        on_device& made = *devices.back();
        for (const std::uint32_t file : file_of) made.fds.push_back(files[file].of(i));
        if (const status s = made.check_sizes(); !s) return s;
        if (const status s = made.place_runs(); !s) return s;
        // A file that is written in this runtime is not read through.
        if (!writable) made.watch_rows();
    }
    return {};
}

status table::on_device::place_runs() {
    const engine::cache_view& c = state().ref.view;
    if (const status s = state().tables.take(*state().device, layout.pieces.size(), room); !s)
        return s;
    engine::table_view& t = ref.view;
    t = {};
    t.runs = room.run_words;
    t.row_bytes = layout.row_bytes;
    t.stride_bytes = stride_of(layout);
    t.run_count = static_cast<std::uint32_t>(layout.pieces.size());
    t.claimed = room.claimed;
    t.note = room.words;
    t.rows_per_run = layout.pieces[0].rows;
    std::vector<engine::table_run> runs;
    std::uint64_t low = t.stride_bytes;
    for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
        const table_piece& piece = layout.pieces[i];
        const int fd = fds[i];
        const std::uint32_t slot = engine::descriptor_slot(c, fd);
        engine::file_record record{};
        const int code = state().device->download(&record, &c.file_records[slot], sizeof record);
        if (code != 0) return {code, "'" + piece.path + "': " + error_text(code)};
        runs.push_back({{record.size_bytes, record.table, slot, engine::descriptor_generation(fd),
                         record.two_level != 0},
                        piece.first_byte,
                        t.rows,
                        piece.rows,
                        fd});
        // All runs but the last have equally many rows, or a search finds them.
        if (piece.rows != t.rows_per_run && i + 1 < layout.pieces.size()) t.rows_per_run = 0;
        if (piece.rows > t.rows_per_run) t.rows_per_run = 0;
        low |= piece.first_byte;
        if (__builtin_add_overflow(t.rows, piece.rows, &t.rows) || t.rows > INT64_MAX)
            return wrong_piece(piece, "the table has too many rows");
    }
    t.only = runs[0];
    t.low_bits = static_cast<std::uint32_t>((low | t.row_bytes) & 15);
    t.parts = engine::parts_of_row(c.page_bytes(), low, t.row_bytes);
    const int code =
        state().device->upload(room.run_words, runs.data(), runs.size() * sizeof runs[0]);
    return {code, code == 0 ? "" : "for a table: " + error_text(code)};
}

void table::on_device::watch_rows() {
    if (state().windows_of_rows.set == nullptr) return;
    std::vector<host::table_windows::part> rows;
    for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
        const std::uint64_t begin = layout.pieces[i].first_byte;
        rows.push_back({fds[i], begin, end_of(layout, layout.pieces[i]).value() - begin});
    }
    windows = std::make_unique<host::table_windows>(state(), std::move(rows));
}

// Closes all that is open. 0, or what keeps bytes from the file `lacking`.
int table::parts::end() {
    devices.clear();
    int first = 0;
    for (std::uint32_t i = 0; i < files.size(); ++i) {
        const int code = rt.close(files[i]);
        if (first != 0 || code == 0) continue;
        first = code;
        lacking = i;
    }
    files.clear();
    return first;
}

table::table(std::unique_ptr<parts> made) : parts_(std::move(made)) {}
table::~table() = default;

status table::close() try {
    const int code = parts_->end();
    if (code == 0) return {};
    if (parts_->rt.process_code() != 0) return {code, of_the_parent(code)};
    const auto& of = parts_->file_of;
    const auto piece = std::find(of.begin(), of.end(), parts_->lacking) - of.begin();
    return {code,
            "'" + parts_->layout.pieces[static_cast<std::size_t>(piece)].path +
                "': not all that was scattered could be written: " + error_text(code) +
                "; it stays in the cache, and goes out with a later sync of the file, or with "
                "the end of the runtime, if the cause is gone by then"};
} catch (...) {
    return host::status_of_exception("closing a table: ");
}

status table::make(runtime& rt, const table_layout& layout, const table_options& settings,
                   std::unique_ptr<table>& out) try {
    if (const int code = rt.process_code(); code != 0) return {code, of_the_parent(code)};
    auto made = std::make_unique<parts>(rt);
    made->layout = layout;
    if (const status s = made->open_files(settings); !s) return s;
    if (const status s = made->place(); !s) return s;
    out.reset(new table(std::move(made)));
    return {};
} catch (...) {
    return host::status_of_exception("a table: ");
}

table_ref table::ref(std::uint32_t device) const {
    PENSTOCK_ASSERT(device < parts_->devices.size());
    return parts_->devices[device]->ref;
}
std::uint64_t table::size() const { return ref().view.rows; }
std::uint64_t table::row_bytes() const { return parts_->layout.row_bytes; }
const table_layout& table::layout() const { return parts_->layout; }

// May a call begin? 0 or a negative errno.
int table::on_device::begin(std::uint64_t count, const void* numbers, const void* memory,
                            const row_options& settings) const {
    if (const int code = rt.process_code(); code != 0) return code;
    const engine::table_note& note = *room.words;
    if (!has_own_note(settings) &&
        engine::look_published(&note.published) != engine::look_taken(&note.taken))
        return static_cast<int>(note.code);
    if (settings.stride_bytes != 0 && settings.stride_bytes < layout.row_bytes) return -EINVAL;
    if (count == 0) return 0;
    if (numbers == nullptr || memory == nullptr) return -EINVAL;
    const std::uint64_t stride =
        settings.stride_bytes != 0 ? settings.stride_bytes : layout.row_bytes;
    return count > INT64_MAX / std::max<std::uint64_t>(stride, 8) ? -EINVAL : 0;
}

void table::on_device::run_on_cpu(const host::table_job& job) {
    // All rows lay in memory at the last look.
    if (job.verb == host::table_verb::will_need && windows != nullptr && windows->are_whole())
        return;
    const std::uint64_t piece =
        host::rows_of_a_piece(job.count, layout.row_bytes, *rt.settings().worker_threads);
    const runtime_ref fs = state().ref;
    host::cpu_rows rows(state(), windows.get(), job);
    std::atomic<std::uint64_t> next{0};
    const auto work = [&](std::uint32_t, std::uint32_t) {
        for (std::uint64_t first = next.fetch_add(piece); first < job.count;
             first = next.fetch_add(piece)) {
            const std::uint64_t end = std::min(first + piece, job.count);
            switch (job.verb) {
                case host::table_verb::gather: rows.deliver(first, end); break;
                case host::table_verb::scatter:
                    host::run_part<host::table_verb::scatter>(lane{}, fs, job, first, end);
                    break;
                case host::table_verb::prefetch:
                    host::run_part<host::table_verb::prefetch>(lane{}, fs, job, first, end);
                    break;
                case host::table_verb::will_need:
                    host::run_part<host::table_verb::will_need>(lane{}, fs, job, first, end);
            }
        }
    };
    // A thread costs as much to start as some hundred rows to copy, or thousands from a window.
    const bool is_quick =
        job.verb == host::table_verb::will_need ||
        (job.verb == host::table_verb::gather && windows != nullptr && windows->are_whole());
    if (job.count * layout.row_bytes < (is_quick ? 1u << 20 : 65536u)) work(0, 1);
    else rt.run_on_workers(work);
}

// A note of the call alone: calls of other threads have theirs.
void table::on_device::run_noting(host::table_job& job, status* own_note) {
    engine::table_note note{};
    std::uint64_t claimed = 0;
    job.table.note = &note;
    job.table.claimed = &claimed;
    run_on_cpu(job);
    if (engine::look_published(&note.published) == 0) return;
    if (own_note != nullptr) *own_note = {static_cast<int>(note.code), text_of(note)};
    else
        engine::note_row(ref.view, note.code, note.number, note.place, note.is_listed != 0,
                         note.is_unsigned != 0);
}

int table::on_device::run(host::table_verb verb, engine::number_list list, std::uint64_t count,
                          void* memory, const row_options& settings) {
    if (has_own_note(settings)) *settings.own_note = {};
    if (const int code = begin(count, list.numbers, memory, settings); code != 0) return code;
    if (count == 0) return 0;
    // A GPU would fault, and lose its context.
    if (reinterpret_cast<std::uintptr_t>(list.numbers) % list.number_bytes() != 0) return -EINVAL;
    list.has_padding = settings.padding.has_value();
    list.padding = settings.padding.value_or(0);
    host::table_job job{verb,
                        ref.view,
                        list,
                        count,
                        static_cast<std::byte*>(memory),
                        settings.stride_bytes != 0 ? settings.stride_bytes : layout.row_bytes};
    state().expect_requests();
    if (state().device->is_gpu())
        return state().device->run_table(state().ref, job, settings.stream);
    run_noting(job, settings.own_note);
    return 0;
}

std::uint32_t table::parts::device_of(const row_options& settings) const {
    if (settings.device) return *settings.device;
    for (std::uint32_t i = 1; i < devices.size(); ++i)
        if (rt.state(i).device->is_of(settings.stream)) return i;
    return 0;
}

int table::parts::run(host::table_verb verb, engine::number_list list, std::uint64_t count,
                      void* memory, const row_options& settings) try {
    const std::uint32_t device = device_of(settings);
    if (device >= devices.size()) return -EINVAL;
    return devices[device]->run(verb, list, count, memory, settings);
} catch (...) {
    return host::status_of_exception("").code;
}

int table::gather_list(engine::number_list list, std::uint64_t count, void* out,
                       const row_options& settings) {
    return parts_->run(host::table_verb::gather, list, count, out, settings);
}

int table::scatter_list(engine::number_list list, std::uint64_t count, const void* rows,
                        const row_options& settings) {
    if (!parts_->writable) return -EROFS;
    return parts_->run(host::table_verb::scatter, list, count, const_cast<void*>(rows), settings);
}

int table::prefetch_list(engine::number_list list, std::uint64_t count,
                         const row_options& settings) {
    // No memory of the caller takes part; any address that is not null will do.
    return parts_->run(host::table_verb::prefetch, list, count, const_cast<void*>(list.numbers),
                       settings);
}

int table::will_need_list(engine::number_list list, std::uint64_t count,
                          const row_options& settings) {
    return parts_->run(host::table_verb::will_need, list, count, const_cast<void*>(list.numbers),
                       settings);
}

// "'shard_3': row 17 (number 17 at place 5 of the list): ..."
std::string table::on_device::text_of(const engine::table_note& note) const {
    const auto row = static_cast<std::uint64_t>(note.number);
    const std::string place =
        note.is_listed != 0 ? " at place " + std::to_string(note.place) + " of a list" : "";
    if (note.code == -ERANGE)
        return "number " +
               (note.is_unsigned != 0 ? std::to_string(row) : std::to_string(note.number)) + place +
               " is no row of a table of " + std::to_string(ref.view.rows) + " rows ('" +
               layout.pieces[0].path + (layout.pieces.size() > 1 ? "' and others" : "'") +
               "); give numbers from 0 on, or name a padding number";
    std::uint64_t first = 0;
    std::size_t piece = 0;
    while (piece + 1 < layout.pieces.size() && row >= first + layout.pieces[piece].rows)
        first += layout.pieces[piece++].rows;
    const table_piece& of = layout.pieces[piece];
    std::string text = "'" + of.path + "': row " + std::to_string(row) + place + ", at byte " +
                       std::to_string(of.first_byte + (row - first) * ref.view.stride_bytes) +
                       ": " + error_text(note.code);
    if (note.code == -ESTALE) text += "; the file was cut or replaced: make the table again";
    return text;
}

status table::on_device::check() {
    const std::lock_guard lock(note_mutex);
    engine::table_note& note = *room.words;
    const std::uint64_t published = engine::look_published(&note.published);
    if (published == note.taken) return {};
    status out{static_cast<int>(note.code), text_of(note)};
    engine::take_note(&note.taken, published);
    return out;
}

status table::check() {
    if (const int code = parts_->rt.process_code(); code != 0)
        return {
            code,
            "the table belongs to the parent of this process; make one of the child's own after "
            "fork()"};
    // A look takes the note: one that is not returned here has to stay for the next call.
    for (const auto& device : parts_->devices)
        if (status s = device->check(); !s) return s;
    return {};
}

int table::sync() {
    int first = 0;
    if (!parts_->writable) return first;
    for (const auto& device : parts_->devices) {
        const host::runtime_state& state = device->state();
        const auto sync_all = [&] {
            int code = 0;
            for (const shared_file& file : parts_->files)
                if (const int failed = state.device->fsync(state.ref, file.of(device->device));
                    code == 0)
                    code = failed;
            return code;
        };
        if (const int code = host::checked(state, sync_all); first == 0) first = code;
    }
    return first;
}

std::int64_t table::on_device::grow_windows() {
    if (windows != nullptr) return windows->grow();
    host::runtime_state& state = this->state();
    if (state.windows == nullptr) return -EOPNOTSUPP;
    const auto is_ours = [&](const host::asked_chunks::chunk& c) {
        return std::any_of(fds.begin(), fds.end(), [&](int fd) {
            return engine::descriptor_slot(state.ref.view, fd) == c.slot;
        });
    };
    return state.grow_windows(*state.windows, state.asked->take(is_ours), nullptr, true);
}

std::int64_t table::grow_windows() try {
    if (const int code = parts_->rt.process_code(); code != 0) return code;
    host::least_of_devices least;
    for (const auto& device : parts_->devices) least.add(device->grow_windows());
    return least.result();
} catch (...) {
    return host::status_of_exception("").code;
}

namespace {

// Of several attempts to open windows: what all opened, or the first error if none could.
struct opened_windows {
    std::int64_t sum = 0, first_error = 0;
    bool any = false;

    void add(std::int64_t inside) {
        any = any || inside >= 0;
        if (inside > 0) sum += inside;
        if (inside < 0 && first_error == 0) first_error = inside;
    }
    [[nodiscard]] std::int64_t result() const { return any ? sum : first_error; }
};

}  // namespace

std::int64_t table::open_windows() try {
    const auto& first = *parts_->devices.front();
    if (first.windows != nullptr && parts_->rt.process_code() == 0) {
        std::int64_t least = INT64_MAX;
        for (const auto& device : parts_->devices) least = std::min(least, device->windows->open());
        return least;
    }
    opened_windows opened;
    for (std::size_t i = 0; i < parts_->layout.pieces.size(); ++i) {
        const table_piece& piece = parts_->layout.pieces[i];
        const auto begin = static_cast<std::int64_t>(piece.first_byte);
        const auto end = static_cast<std::int64_t>(end_of(parts_->layout, piece).value_or(0));
        opened.add(parts_->rt.open_windows(parts_->files[parts_->file_of[i]], begin, end - begin));
    }
    return opened.result();
} catch (...) {
    return host::status_of_exception("").code;
}

}  // namespace penstock
