import { AnimatePresence, animate, motion, useMotionValue, useTransform } from "motion/react";
import { useEffect, useState } from "react";

function Number() {
  const value = useMotionValue(0);
  const text = useTransform(() => `${Math.round(value.get())} cm`);
  useEffect(() => animate(value, 176, { duration: 0.8 }).stop, [value]);
  return <motion.p>{text}</motion.p>;
}

const list = { shown: { transition: { staggerChildren: 0.1 } }, hidden: {} };
const row = { shown: { opacity: 1, y: 0 }, hidden: { opacity: 0, y: 20 } };

export function Component() {
  const [step, setStep] = useState(0);
  useEffect(() => { const timer = setTimeout(() => setStep(1), 200); return () => clearTimeout(timer); }, []);
  return <>
    <AnimatePresence mode="wait">
      <motion.p key={step} initial={{ opacity: 0 }} animate={{ opacity: 1 }} exit={{ opacity: 0 }}>
        {step ? "The second state" : "waiting"}
      </motion.p>
    </AnimatePresence>
    <Number />
    <motion.ul variants={list} initial="hidden" animate="shown">
      {["Wren", "Siskin", "Curlew"].map((name) => <motion.li key={name} variants={row}>{name}</motion.li>)}
    </motion.ul>
    <div style={{ height: 2000 }} />
    <motion.p initial={{ opacity: 0, x: -100 }} whileInView={{ opacity: 1, x: 0 }}>Came into view</motion.p>
  </>;
}
