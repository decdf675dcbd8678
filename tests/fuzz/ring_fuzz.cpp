#include "fuzz/ring_fuzz.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "fuzz/ring_harness.hpp"
#include "penstock/engine/wish.hpp"

namespace penstock::fuzz {

namespace {

constexpr std::uint64_t size_of_a = 1300, size_of_b = 512;

std::uint8_t byte_of(char letter, std::uint64_t i) {
    return static_cast<std::uint8_t>(i * 7 + static_cast<unsigned char>(letter));
}

// Hands out the input's bytes, then zeros.
class input {
public:
    input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
    [[nodiscard]] bool empty() const { return at_ == end_; }
    std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
    std::uint64_t word() {
        std::uint64_t out = 0;
        for (int i = 0; i < 8; ++i) out = out << 8 | byte();
        return out;
    }
    // A number that is often near a border.
    std::uint64_t number() {
        constexpr std::uint64_t borders[] = {0,
                                             1,
                                             511,
                                             512,
                                             513,
                                             1024,
                                             1300,
                                             4095,
                                             4096,
                                             4097,
                                             0x7fffffff,
                                             0x80000000,
                                             0xffffffff,
                                             0x100000000,
                                             0x7fffffffffffffff,
                                             0xffffffffffffffff};
        const std::uint8_t kind = byte();
        if (kind < 128) return borders[kind % 16];
        if (kind < 224) return byte();
        return word();
    }

private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

class session {
public:
    session(const std::string& root, input& in, std::uint8_t bits)
        : in_(in), root_(root), writable_((bits & 8) != 0), ring_(root, plan_of(bits), writable_) {
        if (writable_)
            std::ofstream(root + "/c", std::ios::binary | std::ios::trunc) << std::string(700, 'c');
    }

    std::string run() {
        for (int step = 0; step < 200 && !in_.empty() && wrong_.empty(); ++step) {
            const std::uint8_t kind = in_.byte();
            if (kind % 8 == 0) open_some(kind);
            else if (kind % 8 == 1) publish_nonsense();
            else hostile(kind);
        }
        if (wrong_.empty()) honest();
        if (writable_) others_are_intact();
        return wrong_;
    }

private:
    static fault::fault_plan plan_of(std::uint8_t bits) {
        fault::fault_plan plan;
        if ((bits & 1) != 0) plan.longest_read = 100;
        if ((bits & 2) != 0) plan.shuffle = true;
        if ((bits & 4) != 0) plan.read_delay_ns = 50'000;
        return plan;
    }

    // Names that are honest, hostile or garbage.
    void open_some(std::uint8_t kind) {
        constexpr const char* names[] = {
            "a", "b", "./a", "../../../../../../etc/passwd", "/proc/self/mem", ".", "a/", "absent"};
        std::string name = names[(kind >> 3) % 8];
        // In a session that writes, half of the opens are of its own file, for writing.
        const bool own = writable_ && kind >= 96 && kind < 192;
        constexpr std::uint32_t ways[] = {engine::may_write, engine::may_read_write,
                                          engine::may_read_write | engine::flag_create,
                                          engine::may_write | engine::flag_truncate};
        if (own) name = "c";
        if (kind >= 192) {
            name.clear();
            for (int i = in_.byte(); i > 0; --i) name += static_cast<char>(in_.byte());
        }
        if (name.empty()) return;
        std::uint32_t slot = 0, generation = 0;
        const std::uint64_t ticket = ring_.next;
        const std::int64_t code =
            ring_.open(name, slot, generation, own ? ways[kind / 8 % 4] : engine::may_read);
        if (!ring_.answered(ticket)) return complain("an open was not answered");
        if (code == 0 && (name[0] == '/' || name[0] == '.') && name != "./a" &&
            name.find("/a") == std::string::npos)
            complain("opened " + name);
        if (code == 0 && own) written_.insert({slot, generation});
        if (code == 0) {
            slot_ = slot;
            generation_ = generation;
        }
        ring_.restore_guards();
    }

    // The word of the next slot takes values that announce nothing; the service must not move.
    void publish_nonsense() {
        const std::uint64_t value = in_.word();
        if (value == ring_.next + 1) return;
        ring_.publish(value);
        std::this_thread::yield();
        if (ring_.answered(ring_.next)) complain("answered a request that was never published");
    }

    void hostile(std::uint8_t kind) {
        ring_request request{};
        request.operation = static_cast<op>(in_.byte() % 8 < 7 ? in_.byte() % 13 : in_.number());
        request.bytes = static_cast<std::uint32_t>(in_.number());
        request.file_slot = (kind & 16) != 0 ? slot_ : static_cast<std::uint32_t>(in_.number());
        request.generation =
            (kind & 32) != 0 ? generation_ : static_cast<std::uint32_t>(in_.number());
        request.offset = in_.number();
        request.argument = in_.number();
        if ((kind & 64) != 0) request.lost_extent = in_.number() << 32 | in_.number();
        // Names of one byte could be those of the files that have to stay as they are.
        if (writable_ && (request.operation == op::open || request.operation == op::unlink) &&
            request.bytes == 1)
            request.bytes = 2;
        const std::uint64_t ticket = ring_.next;
        if (request.operation == op::fill) list_frames(ticket);
        if (request.operation == op::wish) list_runs(ticket);
        if (request.operation == op::open) {
            const std::uint64_t seed = in_.word();
            for (std::uint32_t i = 0; i < ring_harness::stride; ++i)
                ring_.staging(ticket)[i] = static_cast<std::byte>(mix64(seed + i));
        }
        ring_.post(request);
        if (!ring_.await(ticket))
            return complain("operation " +
                            std::to_string(static_cast<std::uint32_t>(request.operation)) +
                            " was not answered");
        if (request.operation == op::open) return ring_.restore_guards();
        judge(request, ticket);
    }

    // Frames of the tier, most of them real ones; the memory behind the tier is forbidden.
    void list_frames(std::uint64_t ticket) {
        for (std::uint32_t i = 0; i < listed_bytes / 4; ++i) {
            const auto frame = static_cast<std::uint32_t>(
                in_.byte() % 16 != 0 ? in_.byte() % ring_harness::tier_frames : in_.number());
            std::memcpy(ring_.staging(ticket) + i * 4, &frame, 4);
        }
    }

    // Some runs of pages; half of them are of the file that was opened last.
    void list_runs(std::uint64_t ticket) {
        for (std::uint32_t i = 0; i < listed_runs; ++i) {
            const bool of_open = in_.byte() % 2 == 0;
            const engine::wished_run run{
                of_open ? slot_ : static_cast<std::uint32_t>(in_.number()),
                of_open ? generation_ : static_cast<std::uint32_t>(in_.number()), in_.number()};
            std::memcpy(ring_.staging(ticket) + i * sizeof run, &run, sizeof run);
        }
    }

    void judge(const ring_request& request, std::uint64_t ticket) {
        const std::int64_t result = ring_.reply(ticket).result;
        const bool reads = request.operation == op::read;
        const std::uint32_t written_by_us = request.operation == op::fill ? listed_bytes
                                            : request.operation == op::wish
                                                ? listed_runs * sizeof(engine::wished_run)
                                                : 0;
        if (!ring_.guards_hold(
                ticket, reads && result > 0 ? static_cast<std::uint32_t>(result) : written_by_us))
            complain("wrote to the staging area where it should not");
        if (reads && result > 0) {
            const auto* got = reinterpret_cast<const std::uint8_t*>(ring_.staging(ticket));
            if (result > static_cast<std::int64_t>(request.bytes) ||
                request.offset % ring_harness::page_bytes != 0)
                complain("a read answered more than was asked for");
            else if (written_.count({request.file_slot, request.generation}) == 0 &&
                     got[0] != byte_of('a', request.offset) &&
                     got[0] != byte_of('b', request.offset))
                complain("a read delivered bytes of no file");
        }
        const bool writes = request.operation == op::write || request.operation == op::truncate;
        if (writes && result >= 0 && written_.count({request.file_slot, request.generation}) == 0)
            complain("wrote to a file that was not opened for writing");
        const bool known = request.operation >= op::open && request.operation <= op::wish;
        if (!known && result != -EINVAL)
            complain("an unknown operation was answered with " + std::to_string(result));
        if (request.operation == op::leaf && result == 0 &&
            ring_.reply(ticket).words[0] + 64 > ring_harness::word_count)
            complain("a leaf outside the arena");
        ring_.restore_guards();
    }

    // After all that, an honest group is served as ever.
    void honest() {
        ring_request ping{};
        ping.operation = op::ping;
        const std::uint64_t ticket = ring_.post(ping);
        if (!ring_.await(ticket) || ring_.reply(ticket).result != 0)
            return complain("no answer to a ping");
        std::uint32_t slot = 0, generation = 0;
        const std::int64_t code = ring_.open("b", slot, generation);
        // The hostile device may hold every slot or the whole arena; it only hurts itself.
        if (code == -ENFILE || code == engine::no_table_room) return;
        if (code != 0) return complain("an honest open got " + std::to_string(code));
        ring_.restore_guards();
        ring_request read{};
        read.operation = op::read;
        read.file_slot = slot;
        read.generation = generation;
        read.bytes = size_of_b;
        const std::uint64_t second = ring_.post(read);
        if (!ring_.await(second) || ring_.reply(second).result != size_of_b)
            return complain("an honest read failed");
        for (std::uint64_t i = 0; i < size_of_b; ++i)
            if (static_cast<std::uint8_t>(ring_.staging(second)[i]) != byte_of('b', i))
                return complain("an honest read got wrong bytes");
        honest_fill(slot, generation);
    }

    void honest_fill(std::uint32_t slot, std::uint32_t generation) {
        const std::uint32_t frame = 5;
        ring_request fill{};
        fill.operation = op::fill;
        fill.file_slot = slot;
        fill.generation = generation;
        fill.bytes = size_of_b;
        fill.argument = std::uint64_t{1} << 60;
        std::memcpy(ring_.staging(ring_.next), &frame, 4);
        const std::uint64_t ticket = ring_.post(fill);
        if (!ring_.await(ticket) || ring_.reply(ticket).result != 0)
            return complain("an honest fill failed");
        if (ring_.done_mark(frame) != fill.argument) return complain("an honest fill left no mark");
        for (std::uint64_t i = 0; i < size_of_b; ++i)
            if (static_cast<std::uint8_t>(ring_.tier_frame(frame)[i]) != byte_of('b', i))
                return complain("an honest fill got wrong bytes");
    }

    // Whatever was asked for, only the file that was opened for writing has changed.
    void others_are_intact() {
        for (const char letter : {'a', 'b'}) {
            std::ifstream in(root_ + "/" + letter, std::ios::binary);
            const std::string bytes((std::istreambuf_iterator<char>(in)), {});
            bool same = bytes.size() == (letter == 'a' ? size_of_a : size_of_b);
            for (std::uint64_t i = 0; same && i < bytes.size(); ++i)
                same = static_cast<std::uint8_t>(bytes[i]) == byte_of(letter, i);
            if (!same) complain(std::string("file ") + letter + " was changed");
        }
    }

    void complain(const std::string& complaint) {
        if (wrong_.empty()) wrong_ = complaint;
    }

    static constexpr std::uint32_t listed_bytes = 4 * engine::max_fill_pages, listed_runs = 4;

    input& in_;
    const std::string root_;
    const bool writable_;
    ring_harness ring_;
    std::set<std::pair<std::uint32_t, std::uint32_t>> written_;  // slot and generation
    std::uint32_t slot_ = 0, generation_ = 1;
    std::string wrong_;
};

struct folder {
    std::string path = (std::filesystem::temp_directory_path() / "penstock-fuzz-XXXXXX").string();
    folder() {
        if (::mkdtemp(path.data()) == nullptr) std::abort();
        write("a", size_of_a);
        write("b", size_of_b);
    }
    ~folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    void write(const std::string& name, std::uint64_t bytes) const {
        std::ofstream out(path + "/" + name, std::ios::binary);
        for (std::uint64_t i = 0; i < bytes; ++i) out.put(static_cast<char>(byte_of(name[0], i)));
    }
};

}  // namespace

std::string fuzz_ring(const std::string& root, const std::uint8_t* data, std::size_t size) {
    input in(data, size);
    const std::uint8_t bits = in.byte();
    return session(root, in, bits).run();
}

const std::string& fuzz_root() {
    static const folder place;
    return place.path;
}

}  // namespace penstock::fuzz
