#include "links/links.hpp"

#include <algorithm>

namespace penstock::host {

namespace {

file_key key_of(const file_life& life) { return host::key_of(life.identity); }

bool is_empty(const engine::neighbour_entry& entry) { return entry.life == 0; }

}  // namespace

class links::member_observer final : public life_observer {
public:
    member_observer(links& of, std::uint32_t member) : links_(of), member_(member) {}
    void entered(const file_life& life) override { links_.note(member_, life, false); }
    void written(const file_life& life) override { links_.note(member_, life, true); }
    void ended(const file_life& life) override { links_.forget(member_, life); }
    void settle() override { links_.settle(); }

private:
    links& links_;
    const std::uint32_t member_;
};

links::links(std::vector<member> members, std::uint32_t guests)
    : members_(std::move(members)),
      guests_(guests),
      connected_(members_.size(), std::vector<bool>(members_.size() + guests)),
      lives_(members_.size() + guests) {
    for (std::uint32_t i = 0; i < members_.size(); ++i)
        observers_.push_back(std::make_unique<member_observer>(*this, i));
}

links::~links() = default;

life_observer& links::observer(std::uint32_t member) { return *observers_[member]; }

std::uint32_t links::places() const {
    return static_cast<std::uint32_t>(members_.size()) - 1 + guests_;
}

int links::connect(std::uint32_t reader, std::uint32_t owner, engine::neighbour_distance distance) {
    const engine::cache_view& of = members_[owner].view;
    const engine::neighbour_view seen{reinterpret_cast<std::uintptr_t>(of.words),
                                      reinterpret_cast<std::uintptr_t>(of.file_words),
                                      reinterpret_cast<std::uintptr_t>(of.writes),
                                      reinterpret_cast<std::uintptr_t>(of.frames),
                                      of.word_count,
                                      of.frame_count,
                                      of.file_slots,
                                      of.leaf_shift,
                                      distance,
                                      owner};
    const int code = members_[reader].device->upload(
        members_[reader].view.neighbours + place_of(reader, owner), &seen, sizeof seen);
    connected_[reader][owner] = code == 0;
    return code;
}

int links::place(std::uint32_t guest, const engine::neighbour_view& view) {
    const std::uint32_t owner = guest_member(guest);
    for (std::uint32_t reader = 0; reader < members_.size(); ++reader) {
        const member& to = members_[reader];
        if (const int code =
                to.device->upload(to.view.neighbours + place_of(reader, owner), &view, sizeof view);
            code != 0)
            return code;
    }
    return 0;
}

void links::connect_guest(std::uint32_t guest) {
    const std::lock_guard lock(table_mutex_);
    for (auto& owners : connected_) owners[guest_member(guest)] = true;
}

void links::guest_has(std::uint32_t guest, const file_life& life, bool is_written) {
    {
        const std::lock_guard lock(table_mutex_);
        forget_slot({guest_member(guest), life.slot});
    }
    note(guest_member(guest), life, is_written);
}

void links::guest_has_none(std::uint32_t guest, std::uint32_t slot) {
    const std::lock_guard lock(table_mutex_);
    forget_slot({guest_member(guest), slot});
}

void links::withdraw(std::uint32_t guest) {
    const std::uint32_t owner = guest_member(guest);
    {
        const std::lock_guard lock(table_mutex_);
        for (auto& owners : connected_) owners[owner] = false;
        while (!lives_[owner].empty()) forget_slot({owner, lives_[owner].begin()->first});
    }
    settle();
}

void links::note(std::uint32_t member, const file_life& life, bool is_written) {
    const std::lock_guard lock(table_mutex_);
    const auto before = lives_[member].find(life.slot);
    const bool is_known = before != lives_[member].end();
    const bool writes = is_written || (is_known && before->second.is_written);
    // A rename may have changed its times (file_registry::note_rename).
    if (is_known && !(before->second.life.identity == life.identity))
        forget_slot({member, life.slot});
    known_file& file = files_[key_of(life)];
    known_life& known = lives_[member][life.slot];
    if (writes && !known.is_written && ++file.writers == 1) mark_shared(file);
    known = {life, writes};
    std::set<slot_of>& lives = file.versions[version_of(life)];
    lives.insert({member, life.slot});
    mark_changed(lives);
}

void links::forget(std::uint32_t member, const file_life& life) {
    const std::lock_guard lock(table_mutex_);
    const auto known = lives_[member].find(life.slot);
    if (known == lives_[member].end() || known->second.life.generation != life.generation) return;
    forget_slot({member, life.slot});
}

void links::forget_slot(const slot_of& of) {
    const auto known = lives_[of.member].find(of.slot);
    if (known == lives_[of.member].end()) return;
    const auto file = files_.find(key_of(known->second.life));
    auto& [versions, writers] = file->second;
    const auto lives = versions.find(version_of(known->second.life));
    mark_changed(lives->second);
    lives->second.erase(of);
    if (lives->second.empty()) versions.erase(lives);
    if (known->second.is_written && --writers == 0) mark_shared(file->second);
    if (versions.empty()) files_.erase(file);
    lives_[of.member].erase(known);
}

void links::mark_changed(const std::set<slot_of>& lives) {
    looks_ += lives.size();
    changed_.insert(lives.begin(), lives.end());
    any_changed_.store(true, std::memory_order_relaxed);
}

// A life that is alone has no entry, and gets none.
void links::mark_shared(const known_file& file) {
    for (const auto& [version, lives] : file.versions)
        if (lives.size() > 1) mark_changed(lives);
}

std::vector<engine::neighbour_entry> links::entries_for(const slot_of& of) {
    std::vector<engine::neighbour_entry> out(places());
    const auto own = lives_[of.member].find(of.slot);
    if (own == lives_[of.member].end()) return out;
    const known_file& file = files_.at(key_of(own->second.life));
    if (file.writers != 0) return out;
    const std::set<slot_of>& lives = file.versions.at(version_of(own->second.life));
    looks_ += lives.size();
    for (const slot_of& other : lives) {
        if (!connected_[of.member][other.member]) continue;
        const file_life& there = lives_[other.member].at(other.slot).life;
        out[place_of(of.member, other.member)] = {
            engine::make_entry_life(own->second.life.generation, there.slot, there.generation,
                                    there.two_level),
            there.table};
    }
    return out;
}

// The caller that comes first does the uploads for all before it: one that finds nothing
// left to do waited for the lock of uploads, and so for the thread that did it.
void links::settle() {
    const std::lock_guard uploads(uploads_mutex_);
    if (!any_changed_.load(std::memory_order_relaxed)) return;
    std::vector<std::pair<slot_of, std::vector<engine::neighbour_entry>>> wanted;
    {
        const std::lock_guard lock(table_mutex_);
        for (const slot_of& of : changed_)
            if (of.member < members_.size()) wanted.emplace_back(of, entries_for(of));
        // Not before: where there is no memory for the list, the next caller finds the work undone.
        any_changed_.store(false, std::memory_order_relaxed);
        changed_.clear();
    }
    for (const auto& [of, entries] : wanted) upload(of, entries);
}

// An entry that changes is taken away first, so that no reader finds the life of one and believes
// the table of another; then `table` comes before `life`. A device that does not take an upload is
// broken, and its kernels end.
void links::upload(const slot_of& of, const std::vector<engine::neighbour_entry>& wanted) {
    const auto known = uploaded_.find(of);
    const auto there =
        known == uploaded_.end() ? std::vector<engine::neighbour_entry>(places()) : known->second;
    const member& to = members_[of.member];
    engine::neighbour_entry* const words =
        to.view.neighbour_entries + std::uint64_t{of.slot} * places();
    for (std::uint32_t place = 0; place < places(); ++place) {
        const engine::neighbour_entry &now = there[place], &next = wanted[place];
        if (now.life == next.life && now.table == next.table) continue;
        const std::uint64_t nothing = 0;
        if (!is_empty(now)) to.device->upload(&words[place].life, &nothing, 8);
        if (is_empty(next)) continue;
        to.device->upload(&words[place].table, &next.table, 8);
        to.device->upload(&words[place].life, &next.life, 8);
    }
    if (std::all_of(wanted.begin(), wanted.end(), is_empty)) uploaded_.erase(of);
    else uploaded_[of] = wanted;
}

void links::withdraw_all() {
    const std::lock_guard uploads(uploads_mutex_);
    const std::lock_guard lock(table_mutex_);
    const std::vector<engine::neighbour_entry> nothing(places());
    while (!uploaded_.empty()) {
        const slot_of first = uploaded_.begin()->first;
        upload(first, nothing);
    }
    for (auto& readers : connected_) std::fill(readers.begin(), readers.end(), false);
}

std::uint64_t links::looks() {
    const std::lock_guard lock(table_mutex_);
    return looks_;
}

std::size_t links::shared_lives() {
    const std::lock_guard uploads(uploads_mutex_);
    std::size_t sum = 0;
    for (const auto& [of, entries] : uploaded_)
        sum += static_cast<std::size_t>(std::count_if(
            entries.begin(), entries.end(), [](const auto& entry) { return !is_empty(entry); }));
    return sum;
}

}  // namespace penstock::host
