#include "store/block_object.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace penstock::host {

namespace {

constexpr std::uint64_t tail_magic = 0x316b6c6274736e70;  // "pnstblk1"

struct block_tail {
    std::uint64_t magic;
    block_key key;
    std::uint64_t bytes, sum, unused;
};
static_assert(sizeof(block_tail) == block_tail_bytes);

// What a key is the hash of: numbers of 8 bytes, and texts after their lengths.
class key_text {
public:
    void add(std::uint64_t number) {
        for (unsigned i = 0; i < 8; ++i) bytes_.push_back(std::byte(number >> (8 * i) & 255));
    }
    void add(const std::string& text) {
        add(text.size());
        for (const char c : text) bytes_.push_back(std::byte(c));
    }
    [[nodiscard]] block_key hash() const { return sha256(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

block_tail tail_of(const std::byte* block, std::uint64_t bytes, const block_key& key) {
    return {tail_magic, key, bytes, xxh64({block, bytes}), 0};
}

}  // namespace

block_key key_of(const block_file& file, std::uint64_t number) {
    key_text text;
    text.add(std::string("penstock block 3"));
    text.add(file.space);
    text.add(file.path);
    text.add(file.file_system);
    text.add(file.size_bytes);
    text.add(static_cast<std::uint64_t>(file.modified_ns));
    text.add(static_cast<std::uint64_t>(file.changed_ns));
    text.add(file.number);
    text.add(number);
    text.add(block_bytes);
    return text.hash();
}

std::uint64_t bytes_of_block(std::uint64_t size_bytes, std::uint64_t number) {
    const std::uint64_t begin = number * block_bytes;
    return begin >= size_bytes ? 0 : std::min(block_bytes, size_bytes - begin);
}

void write_tail(std::byte* block, std::uint64_t bytes, const block_key& key) {
    const block_tail tail = tail_of(block, bytes, key);
    std::memcpy(block + bytes, &tail, sizeof tail);
}

bool is_whole(std::span<const std::byte> object, std::uint64_t bytes, const block_key& key,
              bool checks_sum) {
    if (object.size() != bytes + block_tail_bytes) return false;
    block_tail tail;
    std::memcpy(&tail, object.data() + bytes, sizeof tail);
    if (!checks_sum) return true;
    return tail.magic == tail_magic && tail.key == key && tail.bytes == bytes &&
           tail.sum == xxh64(object.first(bytes));
}

}  // namespace penstock::host
