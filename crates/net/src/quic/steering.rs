//! The BPF program with which the kernel finds the worker of a packet, by decrypting the connection ID; see
//! [`super::ids`].

use super::ids::IdCipher;
use flatout_os::datagram::Instruction;

// Classic BPF (linux/bpf_common.h): an instruction code is the sum of class, size, mode, operation and source.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const LOAD_MEMORY: u16 = 0x60;
const LOAD_INDEX_MEMORY: u16 = 0x61;
const STORE: u16 = 0x02;
const SUBTRACT_INDEX: u16 = 0x1c;
const XOR: u16 = 0xa4;
const XOR_INDEX: u16 = 0xac;
const OR_INDEX: u16 = 0x4c;
const AND: u16 = 0x54;
const MODULO: u16 = 0x94;
const SHIFT_LEFT: u16 = 0x64;
const SHIFT_RIGHT: u16 = 0x74;
const TO_INDEX: u16 = 0x07;
const FROM_INDEX: u16 = 0x87;
const JUMP: u16 = 0x05;
const JUMP_IF_SET: u16 = 0x45;
const JUMP_IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_VALUE: u16 = 0x16;

/// Cells of the program's memory: the two words of the block, and a scratch cell.
const FIRST: u32 = 0;
const SECOND: u32 = 1;
const SCRATCH: u32 = 2;

const fn step(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}

/// Appends instructions that rotate the accumulator to the left by `bits`.
fn rotate_left(bits: u32, program: &mut Vec<Instruction>) {
    program.extend([
        step(TO_INDEX, 0),
        step(SHIFT_LEFT, bits),
        step(STORE, SCRATCH),
        step(FROM_INDEX, 0),
        step(SHIFT_RIGHT, 32 - bits),
        step(LOAD_INDEX_MEMORY, SCRATCH),
        step(OR_INDEX, 0),
    ]);
}

/// Returns the program that computes the worker number of a packet, modulo `sockets`. A client's first packets have an
/// ID that the client chose at random; they all go to the same worker, which is random. A packet without an ID goes to
/// the first worker.
pub fn steering_program(cipher: &IdCipher, sockets: u32) -> Vec<Instruction> {
    let mut program = vec![
        step(LOAD_BYTE, 0),
        // RFC 8999 §5: in a long header, the version and the length of the ID precede the ID.
        Instruction { code: JUMP_IF_SET, jump_true: 5, jump_false: 0, operand: 0x80 },
        step(LOAD_WORD, 1),
        step(STORE, FIRST),
        step(LOAD_WORD, 5),
        step(STORE, SECOND),
        step(JUMP, 7),
        step(LOAD_BYTE, 5),
        Instruction { code: JUMP_IF_NOT_BELOW, jump_true: 1, jump_false: 0, operand: 8 },
        step(RETURN, 0),
        step(LOAD_WORD, 6),
        step(STORE, FIRST),
        step(LOAD_WORD, 10),
        step(STORE, SECOND),
    ];
    for &key in cipher.round_keys().iter().rev() {
        program.extend([step(LOAD_MEMORY, SECOND), step(LOAD_INDEX_MEMORY, FIRST), step(XOR_INDEX, 0)]);
        rotate_left(32 - 3, &mut program);
        program.extend([
            step(STORE, SECOND),
            step(LOAD_MEMORY, FIRST),
            step(XOR, key),
            step(LOAD_INDEX_MEMORY, SECOND),
            step(SUBTRACT_INDEX, 0),
        ]);
        rotate_left(8, &mut program);
        program.push(step(STORE, FIRST));
    }
    let worker = super::ids::WORKERS_MAX as u32 - 1;
    program.extend([
        step(LOAD_MEMORY, FIRST),
        step(SHIFT_RIGHT, super::ids::WORKER_SHIFT),
        step(AND, worker),
        step(MODULO, sockets.max(1)),
        step(RETURN_VALUE, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::super::ids::{IdCipher, Owner};
    use super::steering_program;
    use flatout_os::datagram::{attach_steering, bind_datagram};
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    #[test]
    fn the_kernel_finds_the_worker_in_short_and_long_headers() {
        const WORKERS: u16 = 3;
        let cipher = IdCipher::new(&[9; 16]);
        let (first, bound) = bind_datagram(&"127.0.0.1:0".parse().unwrap(), true).unwrap();
        let more = (1..WORKERS).map(|_| bind_datagram(&bound, true).unwrap().0);
        let sockets: Vec<UdpSocket> = std::iter::once(first).chain(more).map(UdpSocket::from).collect();
        attach_steering(sockets[0].as_fd(), &steering_program(&cipher, u32::from(WORKERS))).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for count in 0..50 {
            for worker in 0..WORKERS {
                let id = cipher.seal(Owner { generation: (count % 64) as u8, worker }, count);
                let short = [&[0x41][..], &id, &[count as u8; 20]].concat();
                let long = [&[0xc1, 0, 0, 0, 1, 8][..], &id, &[count as u8; 20]].concat();
                for packet in [short, long] {
                    client.send_to(&packet, bound).unwrap();
                    let socket = &sockets[usize::from(worker)];
                    socket.set_nonblocking(false).unwrap();
                    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
                    let mut received = [0; 64];
                    let length = socket.recv(&mut received).unwrap();
                    assert_eq!(&received[..length], packet);
                }
            }
        }
    }
}
