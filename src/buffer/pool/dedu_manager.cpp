#include "buffer/pool/dedu_manager.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "buffer/core/check.hpp"
#include "buffer/core/clock_order.hpp"
#include "buffer/pool/dedu_absent.hpp"
#include "buffer/pool/dedu_flush.hpp"
#include "buffer/pool/dedu_session.hpp"
#include "buffer/core/lru_order.hpp"
#include "buffer/pool/pause.hpp"

namespace penstock::buffer {

namespace {

constexpr std::uint32_t table_per_frames = 8, absent_per_frame = 2;

limits limits_of(const manager_settings& settings) {
    const dedu_settings& how = settings.dedu;
    const std::uint64_t pages = std::uint64_t{settings.host_pages} + settings.device_pages,
                        table = how.table_pages ? *how.table_pages : table_per_frames * pages;
    const std::uint64_t absent =
        how.absent_blocks ? *how.absent_blocks : absent_per_frame * pages * how.blocks_per_page;
    // A page of the table points at each.
    const std::uint64_t slots = std::min<std::uint64_t>(table, nothing / 128),
                        most_absent =
                            std::min<std::uint64_t>(slots * how.blocks_per_page, nothing / 2);
    return {settings.host_pages, settings.device_pages,
            how.blocks_per_page, static_cast<std::uint32_t>(slots),
            settings.files,      static_cast<std::uint32_t>(std::min(absent, most_absent))};
}

}  // namespace

template <typename Order>
dedu_state<Order>::dedu_state(const manager_settings& settings, device_frames& frames,
                              host::environment& env)
    : settings_(settings),
      shape_(dedu_frames_for(settings)),
      frames_(frames),
      env_(env),
      states_(settings.files, settings.sessions, settings.fixed_pages),
      latches_(limits_of(settings).pages),
      host_places_(std::size_t{limits_of(settings).pages} * how_.blocks_per_page),
      files_(settings.files),
      combined_(std::size_t{settings.sessions} * (how_.window_pages + 1), settings.batch_pages,
                std::chrono::microseconds(settings.batch_wait_us)),
      room_in_use_(settings.sessions),
      remembered_left_(static_cast<std::int64_t>(
          how_.remembered_pages ? *how_.remembered_pages
                                : std::uint64_t{16} * limits_of(settings).pages)),
      wave_(frames, shape_, shape_.most_moves),
      finder_(frames, shape_, settings.batch_pages * how_.blocks_per_page),
      published_(limits_of(settings).pages) {}

template <typename Order>
int dedu_state<Order>::make() {
    return core_.make(limits_of(settings_));
}

template <typename Order>
int dedu_state<Order>::add_file(int fd, std::uint64_t bytes, file_access access) {
    const std::lock_guard hold(sessions_);
    if (bytes >> 52 != 0) return -EINVAL;
    const auto free = std::find(files_.begin(), files_.end(), nullptr);
    if (free == files_.end()) return -EMFILE;
    std::unique_ptr<dedu_file> added(new (std::nothrow) dedu_file(
        how_.blocks_per_page,
        std::uint64_t{core_.inside().host.size()} + core_.inside().device.size()));
    if (added == nullptr) return -ENOMEM;
    added->fd = fd;
    added->is_writable = access == file_access::read_write;
    added->begins_reads = begins_reads(settings_, fd);
    if (const int code = added->grow(bytes, settings_.page_bytes); code != 0) return code;
    *free = std::move(added);
    const auto number = static_cast<std::uint32_t>(free - files_.begin());
    states_.open(number);
    return static_cast<int>(number);
}

template <typename Order>
int dedu_state<Order>::drop_file(std::uint32_t number) {
    dedu_file& file = *files_[number];
    dedu_request asked;
    if (const int code = forget(asked, file, number, 0, file.room, deadline::max()); code != 0)
        return code;
    const std::lock_guard hold(sessions_);
    states_.remove(number);  // before the number may be another file's
    files_[number] = nullptr;
    return 0;
}

// By own() and not by a look: a later owner of a page finds what was done to the file before.
template <typename Order>
int dedu_state<Order>::forget(dedu_request& one, dedu_file& file, std::uint32_t number,
                              std::uint64_t first, std::uint64_t end, deadline until) {
    one.what = dedu_request::kind::forget;
    one.is_signed = one.wants_signs = false;
    for (std::uint64_t at = first; at < std::min<std::uint64_t>(end, file.room); ++at) {
        one.id = {at, number};
        std::uint32_t where = 0;
        for (std::uint32_t round = 0; !page(one.id).own(where); ++round) {
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            help();
            pause_between_looks(round);
        }
        const int code = where == owned_entry::nowhere ? 0 : ask(one);
        file.signs.forget(at);
        page(one.id).disown();
        if (code != 0) return code;
    }
    return 0;
}

template <typename Order>
std::unique_ptr<session> dedu_state<Order>::open_session() try {
    const std::lock_guard hold(sessions_);
    for (std::uint32_t number = 0; number < settings_.sessions; ++number)
        if (!room_in_use_[number]) {
            auto out = std::make_unique<dedu_session<Order>>(*this, number);
            room_in_use_[number] = true;
            return out;
        }
    return nullptr;
} catch (const std::bad_alloc&) {
    return nullptr;
}

template <typename Order>
void dedu_state<Order>::close_session(std::uint32_t number) {
    const std::lock_guard hold(sessions_);
    room_in_use_[number] = false;
}

template <typename Order>
manager_contents dedu_state<Order>::contents() const {
    const std::lock_guard hold(counting_);
    return contents_of<manager_contents>(core_.inside());
}

template <typename Order>
manager_counts dedu_state<Order>::counts() const {
    const std::lock_guard hold(counting_);
    manager_counts out = counts_;
    const auto& inside = core_.inside();
    out.pages = inside.pages.in_use();
    out.device_bytes = std::uint64_t{inside.device.in_use()} * shape_.frame_bytes;
    out.device_pages = out.device_bytes / settings_.page_bytes;
    return out;
}

template <typename Order>
found_by_entry dedu_state<Order>::copy(page_id id, std::byte* to, std::uint64_t from,
                                       std::uint64_t bytes) {
    std::uint32_t slot = 0;
    const found_by_entry answer = page(id).take(latches_.data(), slot);
    if (answer != found_by_entry::taken) return answer;
    const std::uint32_t* place =
        &host_places_[slot * how_.blocks_per_page + from / shape_.frame_bytes];
    for (std::uint64_t done = 0, in_block = from % shape_.frame_bytes; done < bytes;
         ++place, in_block = 0) {
        const std::uint64_t count = std::min(shape_.frame_bytes - in_block, bytes - done);
        std::memcpy(to + done, frame_at(*place) + in_block, count);
        done += count;
    }
    latches_[slot].end(use_kind::read);
    return answer;
}

template <typename Order>
int dedu_state<Order>::read_page(page_id id, std::byte* to, begun_read* begun) {
    const std::uint64_t wanted = bytes_in_file(id), offset = id.page * settings_.page_bytes;
    const int fd = files_[id.file]->fd;
    const int code = begun != nullptr
                         ? end_whole(*begun, env_, fd, to, wanted, settings_.page_bytes, offset)
                         : read_whole(env_, fd, to, wanted, settings_.page_bytes, offset);
    if (code != 0) return code;
    clear_behind(to, wanted, settings_.page_bytes);
    return 0;
}

// By the page's owner. `is_new`: these are not the bytes that the page's signatures are remembered
// of, or may not be.
template <typename Order>
void dedu_state<Order>::sign(dedu_request& one, bool is_new) {
    dedu_file& file = *files_[one.id.file];
    one.is_signed = !file.rests;
    one.wants_signs = false;
    if (!one.is_signed) {
        if (is_new) file.signs.forget(one.id.page);
        return;
    }
    if (const signature* const known = is_new ? nullptr : file.signs.find(one.id.page);
        known != nullptr) {
        for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) one.blocks[i].sign = known[i];
    } else if (how_.sign_on_device) {
        one.wants_signs = true;
    } else {
        for (content_finder::wanted& block : one.blocks)
            block.sign = masked(signature_of(how_.signature, block.bytes, shape_.frame_bytes));
        remember(one);
    }
}

template <typename Order>
int dedu_state<Order>::ask(dedu_request& one) {
    dedu_request* const only = &one;
    combined_.submit(&only, 1, [this](const batch& all) { handle(all); });
    return one.code;
}

template <typename Order>
void dedu_state<Order>::ask(const std::vector<dedu_request*>& some) {
    combined_.submit(some.data(), some.size(), [this](const batch& all) { handle(all); });
}

template <typename Order>
void dedu_state<Order>::finish(dedu_request& one) {
    combined_.finish(one, [this](const batch& all) { handle(all); });
}

template <typename Order>
void dedu_state<Order>::help() {
    if (combined_.has_posted()) combined_.help([this](const batch& all) { handle(all); });
}

template <typename Order>
const char* dedu_state<Order>::check() {
    while (combined_.has_posted()) help();
    if (const char* const wrong = buffer::check(core_.inside()); wrong != nullptr) return wrong;
    for (std::uint32_t number = 0; number < settings_.files; ++number)
        for (std::uint64_t at = 0; files_[number] != nullptr && at < files_[number]->room; ++at) {
            const page_id id{at, number};
            const std::uint32_t where = page(id).where(), slot = core_.inside().pages.find(id);
            if (at >= files_[number]->pages && where != owned_entry::nowhere)
                return "a page is in the buffer that its file does not have";
            if (page(id).is_owned()) return "a page has an owner, and no session uses it";
            if ((where == owned_entry::incomplete) != (slot != nothing && !core_.is_complete(id)))
                return "an entry and the core disagree on whether all of a page is in the buffer";
            if ((where == owned_entry::incomplete || where == owned_entry::elsewhere ||
                 where >= owned_entry::first_slot) != (slot != nothing))
                return "an entry and the core disagree on whether a page is in the buffer";
            if (slot != nothing && published_[slot] != (where >= owned_entry::first_slot))
                return "an entry and the page's slot disagree on whether it can be read";
            if ((where == owned_entry::unwritten) != (find_unwritten(id) != nullptr))
                return "an entry does not tell of a page that could not be written";
            if (where >= owned_entry::first_slot &&
                (where - owned_entry::first_slot != slot || !published_[slot] ||
                 !latches_[slot].is_idle()))
                return "a page can be read in a slot that it does not have";
            for (std::uint32_t i = 0; where >= owned_entry::first_slot && i < how_.blocks_per_page;
                 ++i)
                if (core_.block_of(id, i)->where != side::host ||
                    core_.block_of(id, i)->frame != host_places_[slot * how_.blocks_per_page + i])
                    return "a page can be read where its blocks are not";
        }
    return nullptr;
}

frames_shape dedu_frames_for(const manager_settings& settings) {
    const dedu_settings& how = settings.dedu;
    const std::uint64_t blocks = how.blocks_per_page,
                        pages = std::uint64_t{settings.host_pages} +
                                std::uint64_t{settings.sessions} * own_pages_of(settings) + 1;
    const auto most_moves = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{settings.batch_pages} * blocks, 4096));
    const std::uint64_t block_bytes = settings.page_bytes / std::max<std::uint64_t>(blocks, 1);
    return {pages * blocks + wave::own_frames(std::max<std::uint64_t>(block_bytes, 1)),
            settings.device_pages * blocks, block_bytes, 1,
            std::max(most_moves, how.blocks_per_page)};
}

status make_dedu_manager(const manager_settings& settings, device_frames& frames,
                         host::environment& env, std::unique_ptr<manager>& out) try {
    const dedu_settings& how = settings.dedu;
    if (settings.sessions == 0 || settings.fixed_pages == 0 || how.window_pages == 0)
        return {-EINVAL,
                "a buffer needs a session, a page that it may fix, and windows of a page or more"};
    if (how.blocks_per_page == 0 || settings.page_bytes % how.blocks_per_page != 0 ||
        settings.page_bytes / how.blocks_per_page % signed_bytes != 0)
        return {-EINVAL, "pages of " + std::to_string(settings.page_bytes) + " bytes cannot be " +
                             std::to_string(how.blocks_per_page) +
                             " blocks; blocks are of a multiple of " +
                             std::to_string(signed_bytes) + " bytes"};
    if (settings.host_pages < 2) return {-EINVAL, "a buffer needs two pages in the host"};
    const auto made = [&]<typename Order>(std::unique_ptr<dedu_state<Order>> one) -> status {
        if (const int code = one->make(); code != 0)
            return {code,
                    "the buffer's tables: " + error_text(code) +
                        "; give it fewer pages, or blocks of a power of two in number, up to 64"};
        out = std::move(one);
        return {};
    };
    return settings.order == order_kind::lru
               ? made(std::make_unique<dedu_state<lru_order>>(settings, frames, env))
               : made(std::make_unique<dedu_state<clock_order>>(settings, frames, env));
} catch (const std::exception&) {  // no memory, or tables that no memory could hold
    return {
        -ENOMEM,
        "the host has no memory for the buffer's tables; give it fewer pages, sessions or files"};
}

}  // namespace penstock::buffer
