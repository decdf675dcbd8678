// Arrays in memory of a device, for a class that allocates and uploads bytes: what the memories of
// the programs have in common.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::apps {

// `Memory` derives from this, and has `void* allocate(std::uint64_t)`, null if there is not enough,
// and `bool upload(to, from, bytes)`.
template <typename Memory>
class typed_memory {
public:
    template <typename T>
    bool allocate(T*& out, std::uint64_t count) {
        out = static_cast<T*>(own().allocate(count * sizeof(T)));
        return out != nullptr;
    }
    // A copy of all of `from`; null where that failed.
    template <typename T>
    bool place(const T*& out, const std::vector<T>& from) {
        T* to = nullptr;
        out = nullptr;
        if (!allocate(to, from.size()) || !own().upload(to, from.data(), from.size() * sizeof(T)))
            return false;
        out = to;
        return true;
    }

private:
    Memory& own() { return static_cast<Memory&>(*this); }
};

}  // namespace penstock::apps
